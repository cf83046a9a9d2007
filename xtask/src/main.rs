//! Chores of this repository, run as `cargo xtask …`. This program starts cargo, git and scripts.

mod quick;
mod readability;
mod test_command;

use std::{
    io::Write as _,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context, bail};
use clap::Parser;

/// Chores of this repository.
#[derive(Debug, Parser)]
enum Chore {
    /// Format, lints, the repository's rules, and the unit tests of the crates that changed.
    ///
    /// Warm, it takes less than two minutes.
    Quick {
        /// The commit since which a crate has changed. Uncommitted changes count too.
        #[arg(long, value_name = "COMMIT", default_value = "HEAD")]
        since: String,
    },
    /// Runs all tests, or only the fast or the slow ones. `xtask/slow-tests` lists the slow ones.
    Test {
        /// The selected tests.
        #[arg(value_name = "TESTS", default_value = "all")]
        choice: test_command::TestChoice,
    },
    /// Everything that decides whether a change lands: tests, format, lints, docs, dependencies.
    Ci,
    /// The budgets: measures them, prints the table, and fails where one is missed.
    Bench,
    /// How much of each page of `guest-tools/corpus` `web_fetch` keeps, and how much else it shows.
    Readability {
        /// A folder whose `node_modules` has `@mozilla/readability` and `linkedom`, to compare with.
        #[arg(long, value_name = "FOLDER")]
        peer: Option<PathBuf>,
    },
}

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("the crate is in a workspace")?;
    match Chore::parse() {
        Chore::Quick { since } => quick::quick(root, &since),
        Chore::Test { choice } => test_command::test(root, choice),
        Chore::Ci => run(root, "bash", &[".ci/run"]),
        Chore::Bench => {
            run(root, "cargo", &["bench", "--package", "portcullis-tests", "--bench", "budgets", "--locked"])
        }
        Chore::Readability { peer } => {
            let table = readability::table(root, peer.as_deref())?;
            Ok(std::io::stdout().write_all(table.as_bytes())?)
        }
    }
}

/// Runs a program. Its output goes to the terminal.
fn run(folder: &Path, program: &str, arguments: &[&str]) -> anyhow::Result<()> {
    let status =
        command(folder, program, arguments).status().with_context(|| format!("cannot start `{program}`"))?;
    if !status.success() {
        bail!("`{program} {}` failed", arguments.join(" "));
    }
    Ok(())
}

#[expect(clippy::disallowed_methods, reason = "starting programs is what this crate is for")]
fn command(folder: &Path, program: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(program);
    command.args(arguments).current_dir(folder);
    command
}
