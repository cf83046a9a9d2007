//! `cargo xtask quick`: the checks that are fast enough to run after every change.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{command, run};

/// The files and folders that affect every crate when they change.
const AFFECT_ALL_CRATES: [&str; 4] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo"];

/// Checks the format and the lints, then runs the repository's rules and the unit tests of the changed
/// crates.
///
/// Tests are built for the whole workspace, although few of them run. Cargo unifies features over the
/// packages that it builds, so a partial build would recompile dependencies.
pub(crate) fn quick(root: &Path, since: &str) -> anyhow::Result<()> {
    run(root, "cargo", &["fmt", "--all", "--check"])?;
    run(
        root,
        "cargo",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    )?;
    let changed_folders = find_changed(root, since)?;
    let mut ran_count = 0;
    for TestProgram { folder, name, program } in build_test_programs(root)? {
        let top_folder = folder.strip_prefix(root).ok().and_then(|path| path.iter().next());
        let is_changed = top_folder
            .and_then(|top_folder| top_folder.to_str())
            .is_some_and(|top_folder| changed_folders.contains(top_folder));
        if is_changed || name == RULES {
            let program = program.to_str().context("the target folder's name is text")?;
            // Set this variable as cargo does: the tests use it to find their snapshots.
            let status = command(&folder, program, &["--quiet"])
                .env("CARGO_MANIFEST_DIR", &folder)
                .status()
                .with_context(|| format!("cannot start `{program}`"))?;
            ensure!(status.success(), "tests of `{name}` failed");
            ran_count += 1;
        }
    }
    ensure!(ran_count > 0, "the repository's rules were not built");
    Ok(())
}

/// The name of the test of the repository's rules.
const RULES: &str = "repository";

/// The top-level folders and files with changes.
struct ChangedFolders(BTreeSet<String>);

impl ChangedFolders {
    fn contains(&self, folder: &str) -> bool {
        self.0.contains(folder) || AFFECT_ALL_CRATES.iter().any(|name| self.0.contains(*name))
    }
}

fn find_changed(root: &Path, since: &str) -> anyhow::Result<ChangedFolders> {
    let mut top_folders = BTreeSet::new();
    for arguments in [
        &["diff", "--name-only", "-z", since, "--"][..],
        &["ls-files", "--others", "--exclude-standard", "-z"],
    ] {
        let output = command(root, "git", arguments)
            .stderr(Stdio::inherit())
            .output()
            .context("cannot start `git`")?;
        if !output.status.success() {
            bail!("`git {}` failed", arguments.join(" "));
        }
        let names = String::from_utf8_lossy(&output.stdout).into_owned();
        top_folders.extend(names.split('\0').filter_map(|name| name.split('/').next()).map(str::to_owned));
    }
    Ok(ChangedFolders(top_folders))
}

struct TestProgram {
    /// The folder of the program's crate.
    folder: PathBuf,
    name: String,
    program: PathBuf,
}

/// Builds the unit tests of all crates and the repository's rules.
fn build_test_programs(root: &Path) -> anyhow::Result<Vec<TestProgram>> {
    let arguments = [
        "test",
        "--workspace",
        "--lib",
        "--test",
        RULES,
        "--no-run",
        "--locked",
        "--quiet",
        "--message-format=json-render-diagnostics",
    ];
    let output = command(root, "cargo", &arguments)
        .stderr(Stdio::inherit())
        .output()
        .context("cannot start `cargo`")?;
    ensure!(output.status.success(), "the tests do not build");
    let mut programs = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("cargo's messages are JSON")?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            continue;
        }
        let Some(program) = message["executable"].as_str() else { continue };
        let manifest = message["manifest_path"].as_str().context("an artifact has its manifest's path")?;
        let name = message["target"]["name"].as_str().context("an artifact has a name")?;
        programs.push(TestProgram {
            folder: Path::new(manifest).parent().context("a manifest is in a folder")?.to_owned(),
            name: name.to_owned(),
            program: program.into(),
        });
    }
    Ok(programs)
}
