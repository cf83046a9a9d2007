//! Projects: existing folders, each with an operator's policy in `$XDG_CONFIG_HOME/portcullis/projects/NAME.toml`.
//!
//! A project's file is outside its folder, because a file that comes with a repository may only restrict a
//! policy. A command that runs in the folder or below it finds the file.

use std::{
    ffi::OsString,
    fmt, fs, io,
    path::{Path, PathBuf},
};

use portcullis_tools::{
    confine::bounded::{self, FinalSymlink},
    policy::{DEFAULT_POLICY, MAX_POLICY_FILE_BYTES, MountName, project_of},
};
use toml_edit::{DocumentMut, InlineTable, Item, value};

use crate::{
    error::{Cause, CliError},
    output::text,
    setup::{config_folder, real_path},
    toolchain::FoundToolchains,
};

/// The mount of a project's folder.
pub(crate) const MOUNT: &str = "project";

/// The part of a project's state folder that contains the mounts `tmp` and `vault`. They are separate from
/// the rest, because tools see them.
pub(crate) const MOUNTS_PART: &str = "mounts";

/// The part of a project's state folder that no tool sees: the audit log, compiled modules and whole outputs.
pub(crate) const STATE_PART: &str = "state";

/// The extension of a project's file.
const EXTENSION: &str = "toml";

/// The extension of a file of expectations, before that of a project's file.
const EXPECT: &str = "expect";

/// A folder and the policy file that makes it a project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Project {
    /// The name of the file without its extension.
    pub(crate) name: String,
    /// The policy file.
    pub(crate) file: PathBuf,
    /// The real path of the folder.
    pub(crate) folder: PathBuf,
}

impl fmt::Display for Project {
    /// Formats one line for people: name, folder and file.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let inline_path = |path: &Path| text::inline(&path.display().to_string());
        let (name, folder, file) =
            (text::inline(&self.name), inline_path(&self.folder), inline_path(&self.file));
        write!(f, "project {name}: {folder} is /{MOUNT}, under the policy {file}")
    }
}

impl Project {
    /// Returns the project of a policy file. `None` if the file names no folder or cannot be read. Loading
    /// the policy then reports the fault.
    pub(crate) fn from_file(file: &Path) -> Option<Self> {
        Self::read(file.to_owned()).ok()
    }

    /// Reads the project of a policy file.
    fn read(file: PathBuf) -> Result<Self, CliError> {
        let failed = |source: Cause| CliError::Project { file: file.clone(), source };
        let text = read(&file).map_err(|error| failed(error.into()))?;
        let no_folder = || failed("it names no folder; write `path = \"/…\"` below `[project]`".into());
        let folder = project_of(&text).ok_or_else(no_folder)?;
        let folder = real_path(Path::new(&folder)).map_err(|error| failed(error.into()))?;
        let name = file.file_stem().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { name, file, folder })
    }

    /// Finds the innermost project that contains a folder.
    ///
    /// # Errors
    /// [`CliError::Project`] if a project's file cannot be read or names no folder, or if two files name the project's
    /// folder.
    pub(crate) fn find(folder: &Path) -> Result<Option<Self>, CliError> {
        let Some(projects) = projects_folder() else { return Ok(None) };
        Self::find_in(&projects, folder)
    }

    fn find_in(projects: &Path, folder: &Path) -> Result<Option<Self>, CliError> {
        let projects_found = Self::read_all(projects)?;
        let Some(nearest) = projects_found
            .iter()
            .filter(|project| folder.starts_with(&project.folder))
            .max_by_key(|project| project.folder.components().count())
        else {
            return Ok(None);
        };
        let others = projects_found
            .iter()
            .filter(|other| other.folder == nearest.folder && other.file != nearest.file);
        match others.map(|other| format!("`{}`", other.file.display())).next() {
            Some(other) => Err(CliError::Project {
                file: nearest.file.clone(),
                source: format!(
                    "{other} names the folder `{}` too; remove one of them",
                    nearest.folder.display()
                )
                .into(),
            }),
            None => Ok(Some(nearest.clone())),
        }
    }

    /// Reads all projects of a folder of project files, sorted by name.
    fn read_all(projects: &Path) -> Result<Vec<Self>, CliError> {
        let failed = |error: io::Error| CliError::Project { file: projects.to_owned(), source: error.into() };
        let entries = match fs::read_dir(projects) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other.map_err(failed)?,
        };
        let mut files = Vec::new();
        for entry in entries {
            let path = entry.map_err(failed)?.path();
            // `NAME.expect.toml` has the expectations about the policy NAME.
            let is_expectations =
                path.file_stem().is_some_and(|stem| Path::new(stem).extension() == Some(EXPECT.as_ref()));
            if path.extension().is_some_and(|extension| extension == EXTENSION) && !is_expectations {
                files.push(path);
            }
        }
        files.sort();
        files.into_iter().map(Self::read).collect()
    }
}

/// Returns whether this is the workspace of a project: the folder of its mounts `tmp` and `vault`.
pub(crate) fn is_project_workspace(workspace: &Path) -> bool {
    workspace.ends_with(MOUNTS_PART) && workspace.with_file_name(STATE_PART).is_dir()
}

/// Returns the folder of the project files: `$XDG_CONFIG_HOME/portcullis/projects`, else below
/// `$HOME/.config`.
pub(crate) fn projects_folder() -> Option<PathBuf> {
    Some(config_folder()?.join("projects"))
}

/// Returns the file of a project with this name.
pub(crate) fn file_of(projects: &Path, name: &str) -> PathBuf {
    let mut file = OsString::from(name);
    file.push(".");
    file.push(EXTENSION);
    projects.join(file)
}

/// Returns a name for a project's file: the folder's name, in which `-` replaces every character except ASCII letters
/// and digits, `.` and `_`. Dots at the start are dropped. If nothing is left, the name is `project`.
pub(crate) fn name_for(folder: &Path) -> String {
    let name = folder.file_name().unwrap_or_default().to_string_lossy();
    let is_plain = |character: char| character.is_ascii_alphanumeric() || "._-".contains(character);
    let name: String =
        name.chars().map(|character| if is_plain(character) { character } else { '-' }).collect();
    let name = name.trim_start_matches('.');
    // A name with this ending would be mistaken for a file of expectations.
    let name = &name.replace(".expect", "-expect");
    if name.is_empty() { MOUNT.to_owned() } else { name.to_owned() }
}

/// Returns the policy of a project: the shipped policy with the mount `project` instead of `shared`, and with
/// the toolchains in `[shell]`.
pub(crate) fn policy_text(
    folder: &str,
    toolchains: &FoundToolchains,
) -> Result<String, toml_edit::TomlError> {
    let shared = MountName::SHARED;
    let mut policy: DocumentMut = DEFAULT_POLICY.parse()?;
    for (_, profile) in policy["profiles"].as_table_mut().into_iter().flat_map(toml_edit::Table::iter_mut) {
        if let Some(mounts) = profile.get_mut("mounts").and_then(Item::as_inline_table_mut) {
            rename_mount(mounts, shared);
        }
    }
    if let Some(mounts) = policy["shell"]["mounts"].as_inline_table_mut() {
        rename_mount(mounts, shared);
    }
    if let Some(shell) = policy["shell"].as_table_mut() {
        shell.insert("timeout", value(COMMAND_TIME));
        insert_toolchains(shell, toolchains);
    }
    if let Some(mounts) = policy["mounts"].as_table_mut() {
        mounts.remove(shared);
        let mount = [("path", toml_edit::Value::from(folder)), ("undo", true.into())];
        mounts.insert(MOUNT, value(mount.into_iter().collect::<InlineTable>()));
        // Sorting puts the folder first, which matters most.
        mounts.sort_values();
    }
    let names: toml_edit::Array = HIDDEN.into_iter().collect();
    let mut hide = toml_edit::Table::new();
    hide.insert("paths", value(names));
    hide.decor_mut().set_prefix(HIDE_COMMENT);
    policy.insert("hide", Item::Table(hide));
    let body = policy.to_string();
    let body = body.split_once("version = 1\n").map_or(body.as_str(), |(_, rest)| rest);
    let folder = value(folder);
    Ok(format!(
        "{HEAD}\nversion = 1\nhome = \"{MOUNT}\"                   # where relative paths of tools start\n{}\n[project]\npath = {}\n{}",
        body.split_once("\n[mounts]").map_or("", |(before, _)| before),
        folder.as_value().map(ToString::to_string).unwrap_or_default().trim(),
        body.split_once("\n[mounts]").map_or(String::new(), |(_, after)| format!("\n[mounts]{after}")),
    ))
}

fn insert_toolchains(shell: &mut toml_edit::Table, toolchains: &FoundToolchains) {
    let FoundToolchains { read, path, variables, .. } = toolchains;
    for (key, values) in [("read", read), ("path", path)] {
        if !values.is_empty() {
            shell.insert(key, value(values.iter().collect::<toml_edit::Array>()));
        }
    }
    if !variables.is_empty() {
        shell.insert(
            "variables",
            value(variables.iter().map(|(name, value)| (*name, value)).collect::<InlineTable>()),
        );
    }
}

/// The time limit of one command: tests of a project often compile it first.
const COMMAND_TIME: &str = "10m";

/// The names that a new project's policy hides: files that often hold keys.
const HIDDEN: [&str; 20] = [
    ".env",
    ".env.*",
    "*.pem",
    "*.key",
    "*.p12",
    "*.pfx",
    "*.kdbx",
    "id_rsa*",
    "id_ed25519*",
    "id_ecdsa*",
    "id_dsa*",
    ".aws",
    ".azure",
    ".gnupg",
    ".ssh",
    ".kube",
    ".netrc",
    ".pgpass",
    ".pypirc",
    ".git-credentials",
];

/// The comment before the hidden names.
const HIDE_COMMENT: &str = "
# Names at any depth that no tool sees. `*` stands for any characters.
";

/// The first lines of a project's file.
const HEAD: &str = "\
# The policy of a project. `portcullis` finds this file when it runs in the folder below `[project]`.
# A `portcullis.toml` in that folder can take away from this policy, and never adds to it.
";

/// Renames the key of a mount in a table of grants.
fn rename_mount(mounts: &mut InlineTable, old: &str) {
    if let Some(access) = mounts.remove(old) {
        let others = std::mem::take(mounts);
        mounts.insert(MOUNT, access);
        mounts.extend(others);
        mounts.fmt();
    }
}

fn read(file: &Path) -> io::Result<String> {
    bounded::read_text(bounded::open_regular(file, FinalSymlink::Follow)?, MAX_POLICY_FILE_BYTES)
}

#[cfg(test)]
mod tests {
    use portcullis_tools::policy::{LoadOptions, PolicySource, WorkspaceSecurityPolicy};
    use portcullis_types::{SandboxTier, error_chain};

    use super::*;

    fn load(text: &str) -> WorkspaceSecurityPolicy {
        let operator = PolicySource { name: "p", text };
        let options = LoadOptions { operator, overlay: None, sandbox_tier: SandboxTier::Process };
        WorkspaceSecurityPolicy::load(&options).unwrap_or_else(|error| panic!("{text}\n{error}"))
    }

    /// Creates a folder of project files, and folders beside it.
    fn projects(files: &[(&str, &str)]) -> (tempfile::TempDir, PathBuf) {
        let root = tempfile::tempdir().expect("a folder");
        let base = real_path(root.path()).expect("a path");
        let projects = base.join("projects");
        fs::create_dir(&projects).expect("the folder can be made");
        for (name, text) in files {
            let text = text.replace("ROOT", base.to_str().expect("the path is UTF-8"));
            fs::write(projects.join(name), text).expect("written");
        }
        (root, projects)
    }

    #[test]
    fn a_projects_policy_replaces_the_mount_shared_by_the_folder() {
        for folder in ["/srv/code", "/srv/a \"b\" \\ c\u{e9}"] {
            let policy = load(&policy_text(folder, &FoundToolchains::default()).expect("a text"));
            assert_eq!((policy.home().as_str(), policy.project()), (MOUNT, Some(folder)));
            let mounts: Vec<_> =
                policy.mounts().iter().map(|mount| (mount.name.as_str(), &*mount.folder)).collect();
            assert_eq!(mounts, [(MOUNT, folder), ("tmp", "tmp"), ("vault", "vault")]);
            // Apart from the names and the folder, both policies mean the same.
            let shipped = load(DEFAULT_POLICY).effective_toml().replace("\"shared\"", "\"project\"");
            let shipped = shipped
                .replace("shared =", "project =")
                .replace("[mounts]\nproject = \"project\"\n", "[mounts]\n")
                .replace("timeout = \"1m\"", &format!("timeout = \"{COMMAND_TIME}\""));
            let sorted = |text: &str| {
                let mut lines: Vec<String> =
                    text.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect();
                lines.sort();
                lines
            };
            let ours = policy.effective_toml();
            let (before, after) = ours.split_once("\n[project]\n").expect("the section");
            let after = after.split_once('\n').expect("the path").1;
            let (_, hidden) = ours.split_once("\n[hide]\npaths = [").expect("the section");
            let hidden = hidden.split(']').next().expect("a list");
            let listed = format!("[{}]", HIDDEN.map(|name| format!("{name:?}")).join(", "));
            assert_eq!(hidden.split(", ").count(), HIDDEN.len(), "{hidden}");
            assert!(include_str!("../../docs/projects.md").contains(&format!("paths = {listed}\n")));
            let ours = format!("{before}\n{after}").replace(&format!("\n[hide]\npaths = [{hidden}]\n"), "");
            let ours: String = ours
                .lines()
                .filter(|line| !line.starts_with("project = { path = \"/"))
                .flat_map(|line| [line, "\n"])
                .collect();
            assert_eq!(sorted(&ours), sorted(&shipped));
        }
    }

    #[test]
    fn the_nearest_project_is_found() {
        let (root, projects) = projects(&[
            ("outer.toml", "[project]\npath = 'ROOT/code'\n"),
            ("inner.toml", "[project]\npath = 'ROOT/code/inner'\n"),
            ("note.txt", "no project"),
        ]);
        let base = real_path(root.path()).expect("a path");
        let found = |folder: &str| {
            let found = Project::find_in(&projects, &base.join(folder)).expect("no fault");
            found.map(|project| project.name)
        };
        assert_eq!(found("code").as_deref(), Some("outer"));
        assert_eq!(found("code/src/deep").as_deref(), Some("outer"));
        assert_eq!(found("code/inner/src").as_deref(), Some("inner"));
        assert_eq!(found("code2"), None);
        assert_eq!(found(""), None);
    }

    #[test]
    fn two_files_of_one_folder_or_a_missing_folder_are_faults() {
        let twice = "[project]\npath = 'ROOT/code'\n";
        let (root, files) = projects(&[("a.toml", twice), ("b.toml", twice)]);
        let error =
            Project::find_in(&files, &real_path(root.path()).expect("a path").join("code")).expect_err("two");
        assert!(error_chain(&error).contains("names the folder"), "{error}");
        for text in ["version = 1\n", "[project]\npath = 'code'\n", "[[", "\u{0}"] {
            let (root, files) = projects(&[("a.toml", text)]);
            let error = Project::find_in(&files, root.path()).expect_err("no folder");
            assert!(error_chain(&error).contains("names no folder"), "{text}: {error}");
        }
        let (root, files) = projects(&[]);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            files.join("a.toml"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .expect("a FIFO");
        let error = Project::find_in(&files, root.path()).expect_err("a FIFO");
        assert!(error_chain(&error).contains("not a regular file"), "{error}");
    }

    #[test]
    fn a_name_is_that_of_the_folder_in_plain_characters() {
        for (folder, name) in [
            ("/a/code", "code"),
            ("/a/my code\n", "my-code-"),
            ("/a/.hidden", "hidden"),
            ("/a/\u{e9}t\u{e9}", "-t-"),
            ("/a/...", "project"),
            ("/", "project"),
        ] {
            assert_eq!(name_for(Path::new(folder)), name);
        }
    }
}
