//! Finds the toolchains in a person's home, for the policy that `portcullis init` proposes.
//!
//! A toolchain's folder often also contains keys, such as `~/.cargo/credentials.toml`. Only the folders that
//! programs need are proposed, never the whole folder.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
};

use portcullis_tools::confine::user_folders::absolute_variable;

/// The toolchains that were found, in the form of `[shell]` of a policy.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FoundToolchains {
    /// The names of the toolchains, for people.
    pub(crate) names: Vec<&'static str>,
    pub(crate) read: Vec<String>,
    /// The values of `path`.
    pub(crate) path: Vec<String>,
    /// The table `variables`.
    pub(crate) variables: BTreeMap<&'static str, String>,
}

struct ToolchainKind {
    name: &'static str,
    /// The variable that names the toolchain's folder. Commands get it.
    variable: Option<&'static str>,
    /// The folder below the home, if the variable is not set.
    folder: &'static str,
    /// Whether the folder contains one folder for each version. The newest version is then used.
    has_versions: bool,
    /// A file or folder that only this toolchain has, for a folder that other programs use too. Without it,
    /// the toolchain counts as missing.
    marker: Option<&'static str>,
    /// The files and folders in the toolchain's folder that programs need. Each is proposed if it exists.
    /// Empty means the whole folder.
    parts: &'static [&'static str],
    /// The folders of programs in the toolchain's folder.
    programs: &'static [&'static str],
}

const PLAIN: ToolchainKind = ToolchainKind {
    name: "",
    variable: None,
    folder: "",
    has_versions: false,
    marker: None,
    parts: &[],
    programs: &[],
};

/// The toolchains that are searched for. A kind counts as found if one of its parts exists. The programs of
/// cargo and go may be the system's, so that only their fetched dependencies are in the home.
const KINDS: [ToolchainKind; 6] = [
    ToolchainKind {
        name: "rustup",
        variable: Some("RUSTUP_HOME"),
        folder: ".rustup",
        // rustup's programs try to create the last folder if they cannot see it.
        parts: &["toolchains", "settings.toml", "update-hashes"],
        ..PLAIN
    },
    ToolchainKind {
        name: "cargo",
        variable: Some("CARGO_HOME"),
        folder: ".cargo",
        parts: &["bin", "registry", "git"],
        programs: &["bin"],
        ..PLAIN
    },
    ToolchainKind {
        name: "pyenv",
        variable: Some("PYENV_ROOT"),
        folder: ".pyenv",
        parts: &["bin", "libexec", "shims", "versions", "version"],
        programs: &["shims", "bin"],
        ..PLAIN
    },
    ToolchainKind {
        name: "uv",
        folder: ".local",
        marker: Some("share/uv"),
        parts: &["bin", "share/uv/python", "share/uv/tools"],
        programs: &["bin"],
        ..PLAIN
    },
    ToolchainKind {
        name: "go",
        variable: Some("GOPATH"),
        folder: "go",
        parts: &["bin", "pkg/mod"],
        programs: &["bin"],
        ..PLAIN
    },
    ToolchainKind {
        name: "nvm",
        folder: ".nvm/versions/node",
        has_versions: true,
        programs: &["bin"],
        ..PLAIN
    },
];

/// The folder in which Go's installer puts it.
const GO: &str = "/usr/local/go/bin";

impl FoundToolchains {
    /// Searches a home, and the folders that this process's variables name.
    pub(crate) fn in_home(home: &Path) -> Self {
        let mut found = Self::with_variables(home, absolute_variable);
        if Path::new(GO).is_dir() {
            found.read.push(GO.to_owned());
            found.path.push(GO.to_owned());
        }
        found
    }

    fn with_variables(home: &Path, variable_value: impl Fn(&str) -> Option<PathBuf>) -> Self {
        let mut found = Self::default();
        for kind in &KINDS {
            let mut folder =
                kind.variable.and_then(&variable_value).unwrap_or_else(|| home.join(kind.folder));
            if kind.has_versions {
                let Some(version) = newest(&folder) else { continue };
                folder.push(version);
            }
            let parts: Vec<PathBuf> = match kind.parts {
                [] => vec![folder.clone()],
                parts => parts.iter().map(|part| folder.join(part)).filter(|part| part.exists()).collect(),
            };
            let programs = kind.programs.iter().map(|part| folder.join(part));
            let programs: Vec<PathBuf> = programs.filter(|folder| folder.is_dir()).collect();
            let is_absent = kind.marker.is_some_and(|marker| !folder.join(marker).is_dir());
            if parts.is_empty() || is_absent {
                continue;
            }
            // Skip a path that is not UTF-8, or that no policy can name.
            let Some(read) = parts.iter().map(|part| policy_notation(part, home)).collect::<Option<Vec<_>>>()
            else {
                continue;
            };
            found.names.push(kind.name);
            found.read.extend(read);
            found.path.extend(programs.iter().filter_map(|folder| policy_notation(folder, home)));
            if let (Some(variable), Some(folder)) = (kind.variable, policy_notation(&folder, home)) {
                found.variables.insert(variable, folder);
            }
        }
        found
    }
}

/// Formats a path in a policy's notation.
fn policy_notation(path: &Path, home: &Path) -> Option<String> {
    let text = match path.strip_prefix(home) {
        Ok(below) => format!("~/{}", below.to_str()?),
        Err(_) => path.to_str()?.to_owned(),
    };
    text.parse::<portcullis_tools::policy::HostPath>().is_ok().then_some(text)
}

/// Returns the name of the newest version in a folder of versions, such as `v22.1.0`.
fn newest(versions: &Path) -> Option<String> {
    let names = fs::read_dir(versions).ok()?.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let number = |name: &String| -> Option<Vec<u64>> {
        name.strip_prefix('v')?.split('.').map(|part| part.parse().ok()).collect()
    };
    names.filter(|name| number(name).is_some()).max_by_key(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(paths: &[&str]) -> tempfile::TempDir {
        let home = tempfile::tempdir().expect("a folder");
        for path in paths {
            let path = home.path().join(path);
            if path.extension().is_some() || path.ends_with("version") {
                fs::create_dir_all(path.parent().expect("a parent")).expect("the folder can be made");
                fs::write(path, "").expect("written");
            } else {
                fs::create_dir_all(path).expect("the folder can be made");
            }
        }
        home
    }

    #[test]
    fn the_parts_that_programs_need_are_proposed_and_no_key() {
        let home = home(&[
            ".rustup/toolchains",
            ".rustup/settings.toml",
            ".cargo/bin",
            ".cargo/registry",
            ".cargo/credentials.toml",
            ".nvm/versions/node/v9.0.0/bin",
            ".nvm/versions/node/v20.1.0/bin",
            ".nvm/versions/node/system",
            ".pyenv/shims",
            ".pyenv/version",
            ".local/bin",
            ".ssh",
        ]);
        let found = FoundToolchains::with_variables(home.path(), |_| None);
        assert_eq!(found.names, ["rustup", "cargo", "pyenv", "nvm"]);
        assert_eq!(
            found.read,
            [
                "~/.rustup/toolchains",
                "~/.rustup/settings.toml",
                "~/.cargo/bin",
                "~/.cargo/registry",
                "~/.pyenv/shims",
                "~/.pyenv/version",
                "~/.nvm/versions/node/v20.1.0",
            ]
        );
        assert_eq!(found.path, ["~/.cargo/bin", "~/.pyenv/shims", "~/.nvm/versions/node/v20.1.0/bin"]);
        let variables: Vec<_> =
            found.variables.iter().map(|(name, value)| format!("{name}={value}")).collect();
        assert_eq!(variables, ["CARGO_HOME=~/.cargo", "PYENV_ROOT=~/.pyenv", "RUSTUP_HOME=~/.rustup"]);
    }

    #[test]
    fn dependencies_that_the_systems_programs_fetched_are_proposed() {
        let home = home(&[".cargo/registry", "go/pkg/mod"]);
        let found = FoundToolchains::with_variables(home.path(), |_| None);
        assert_eq!(found.names, ["cargo", "go"]);
        assert_eq!(found.read, ["~/.cargo/registry", "~/go/pkg/mod"]);
        assert!(found.path.is_empty(), "{:?}", found.path);
    }

    #[test]
    fn a_variable_says_where_a_toolchain_lies() {
        let (home, other) = (home(&[".cargo/bin"]), home(&["bin", "registry"]));
        let cargo = other.path().to_owned();
        let found = FoundToolchains::with_variables(home.path(), |name| {
            (name == "CARGO_HOME").then(|| cargo.clone())
        });
        let folder = cargo.to_str().expect("the path is UTF-8");
        assert_eq!(found.read, [format!("{folder}/bin"), format!("{folder}/registry")]);
        assert_eq!(found.variables["CARGO_HOME"], folder);
        assert_eq!(FoundToolchains::with_variables(Path::new("/gone"), |_| None), FoundToolchains::default());
    }
}
