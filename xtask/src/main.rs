//! Chores of this repository, run as `cargo xtask …`. It starts cargo and scripts and does nothing itself.

use std::{path::Path, process::Command};

use anyhow::{Context, bail};
use clap::Parser;

/// Chores of this repository.
#[derive(Debug, Parser)]
enum Chore {
    /// Everything that decides whether a change lands: tests, format, lints, docs, dependencies.
    Ci,
    /// The budgets: measures them, prints the table, and fails where one is missed.
    Bench,
}

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate lies in a workspace")?;
    match Chore::parse() {
        Chore::Ci => run(root, "bash", &[".ci/run"]),
        Chore::Bench => {
            run(root, "cargo", &["bench", "--package", "portcullis-tests", "--bench", "budgets", "--locked"])
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "starting programs is what this crate is for")]
fn run(root: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let status = Command::new(program)
        .args(arguments)
        .current_dir(root)
        .status()
        .with_context(|| format!("cannot start `{program}`"))?;
    if !status.success() {
        bail!("`{program} {}` failed", arguments.join(" "));
    }
    Ok(())
}
