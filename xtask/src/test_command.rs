//! `cargo xtask test`: all tests, the fast ones, or the slow ones.

use std::path::Path;

/// The names of the slow tests, one per line. A slow test took at least seven seconds while all tests ran on
/// two cores.
const SLOW_TESTS: &str = include_str!("../slow-tests");

/// The selection of tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum TestChoice {
    /// All.
    All,
    /// All but the slow ones.
    Fast,
    /// The slow ones.
    Slow,
}

/// Runs tests of the whole workspace.
pub(crate) fn test(root: &Path, choice: TestChoice) -> anyhow::Result<()> {
    crate::run(root, "cargo", &arguments(choice))
}

fn arguments(choice: TestChoice) -> Vec<&'static str> {
    let mut arguments = vec!["test", "--workspace", "--locked"];
    match choice {
        TestChoice::All => {}
        TestChoice::Fast => {
            arguments.push("--");
            arguments.extend(SLOW_TESTS.lines().flat_map(|name| ["--skip", name]));
        }
        TestChoice::Slow => {
            arguments.extend(["--tests", "--", "--exact"]);
            arguments.extend(SLOW_TESTS.lines());
        }
    }
    arguments
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, fs};

    use super::*;

    #[test]
    fn each_test_is_either_fast_or_slow() {
        assert_eq!(arguments(TestChoice::All), ["test", "--workspace", "--locked"]);
        let slow = SLOW_TESTS.lines().count();
        assert_eq!(arguments(TestChoice::Fast).len(), 4 + 2 * slow);
        assert_eq!(arguments(TestChoice::Slow).len(), 6 + slow);
    }

    /// A name without a test would mean that a slow test runs among the fast ones.
    #[test]
    fn each_slow_test_exists() {
        let mut functions_found = BTreeSet::new();
        let mut folders =
            vec![Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace").to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).expect("readable") {
                let path = entry.expect("readable").path();
                let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
                if path.is_dir() && !path.is_symlink() && !matches!(name, "target" | ".git") {
                    folders.push(path);
                } else if name.ends_with(".rs") {
                    let text = fs::read_to_string(&path).expect("readable");
                    let functions = text.split("fn ").skip(1).filter_map(|rest| rest.split('(').next());
                    functions_found.extend(functions.map(str::to_owned));
                }
            }
        }
        for name in SLOW_TESTS.lines() {
            let function = name.rsplit("::").next().expect("a name");
            assert!(functions_found.contains(function), "{name}");
        }
        assert!(SLOW_TESTS.lines().is_sorted(), "one order");
    }
}
