//! `cargo xtask quick`: the checks that a person runs between two thoughts.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    process::Stdio,
};

use anyhow::{Context, bail, ensure};
use serde_json::Value;

use crate::{command, run};

/// The files whose change affects every crate.
const OF_ALL: [&str; 4] = ["Cargo.toml", "Cargo.lock", "rust-toolchain.toml", ".cargo"];

/// Checks the format, then the lints, then runs the repository's rules and the unit tests of what changed.
///
/// Tests are built for the whole workspace, though few are run: cargo unites features over the packages that it is
/// asked to build, and would compile other projects' crates once more for a part of them.
pub(crate) fn quick(root: &Path, since: &str) -> anyhow::Result<()> {
    run(root, "cargo", &["fmt", "--all", "--check"])?;
    run(
        root,
        "cargo",
        &["clippy", "--workspace", "--all-targets", "--locked", "--quiet", "--", "-D", "warnings"],
    )?;
    let changed = changed(root, since)?;
    let mut ran = 0;
    for TestProgram { folder, name, program } in built(root)? {
        let top = folder.strip_prefix(root).ok().and_then(|below| below.iter().next());
        let is_changed = top.and_then(|top| top.to_str()).is_some_and(|top| changed.of(top));
        if is_changed || name == RULES {
            let program = program.to_str().context("the target folder's name is text")?;
            // As cargo does; snapshots are found by the variable.
            let status = command(&folder, program, &["--quiet"])
                .env("CARGO_MANIFEST_DIR", &folder)
                .status()
                .with_context(|| format!("cannot start `{program}`"))?;
            ensure!(status.success(), "tests of `{name}` failed");
            ran += 1;
        }
    }
    ensure!(ran > 0, "the repository's rules were not built");
    Ok(())
}

/// The test of the repository's rules.
const RULES: &str = "repository";

/// The folders below the root in which something changed.
struct ChangedFolders(BTreeSet<String>);

impl ChangedFolders {
    fn of(&self, folder: &str) -> bool {
        self.0.contains(folder) || OF_ALL.iter().any(|name| self.0.contains(*name))
    }
}

fn changed(root: &Path, since: &str) -> anyhow::Result<ChangedFolders> {
    let mut tops = BTreeSet::new();
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
        tops.extend(names.split('\0').filter_map(|name| name.split('/').next()).map(str::to_owned));
    }
    Ok(ChangedFolders(tops))
}

/// A test program.
struct TestProgram {
    /// Its crate's.
    folder: PathBuf,
    name: String,
    program: PathBuf,
}

/// Builds the unit tests of all crates and the repository's rules.
fn built(root: &Path) -> anyhow::Result<Vec<TestProgram>> {
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
    let mut built = Vec::new();
    for line in output.stdout.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        let message: Value = serde_json::from_slice(line).context("cargo's messages are JSON")?;
        if message["reason"] != "compiler-artifact" || message["profile"]["test"] != true {
            continue;
        }
        let Some(program) = message["executable"].as_str() else { continue };
        let manifest = message["manifest_path"].as_str().context("an artifact has its manifest's path")?;
        let name = message["target"]["name"].as_str().context("an artifact has a name")?;
        built.push(TestProgram {
            folder: Path::new(manifest).parent().context("a manifest lies in a folder")?.to_owned(),
            name: name.to_owned(),
            program: program.into(),
        });
    }
    Ok(built)
}
