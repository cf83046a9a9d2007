//! `file_search` over 100 MB of source, compared with ripgrep with one thread.

use std::{
    fs,
    path::{Path, PathBuf},
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::ToolRegistry;
use serde_json::json;

use crate::{report::Report, sample::median_us};

const CORPUS_BYTES: u64 = 100_000_000;
const ROUNDS: usize = 5;

/// Queries with a few dozen hits at most, so that both programs read everything. Each has a name, the pattern, whether
/// the pattern is a regular expression, and whether it is case-sensitive.
const QUERIES: [(&str, &str, bool, bool); 4] = [
    ("a text", "unreachable pattern in", false, true),
    ("a text in any case", "Unreachable Pattern In", false, false),
    ("an expression", r"fn \w+_without_\w+_from\(", true, true),
    ("an expression in any case", r"(?i)impl \w+ for notthere\w*", true, true),
];

pub(crate) async fn searching(registry: &ToolRegistry, fixture: &Fixture, report: &mut Report) {
    let Some(ripgrep) = ripgrep() else {
        report.add_unmeasurable("file_search of 100 MB of source", "ripgrep (`rg`) is not installed");
        return;
    };
    let bytes = corpus(fixture);
    assert!(bytes >= CORPUS_BYTES, "{bytes} bytes of source below cargo's home");
    for (name, query, regex, case_sensitive) in QUERIES {
        let (mut guest, mut native) = (Vec::new(), Vec::new());
        let mut lines = (0, 0);
        // The first round fills the page cache.
        for round in 0..=ROUNDS {
            let (guest_result, native_result) = (
                search(registry, query, regex, case_sensitive).await,
                native_search(&ripgrep, fixture, query, regex, case_sensitive),
            );
            lines = (guest_result.1, native_result.1);
            if round > 0 {
                guest.push(guest_result.0);
                native.push(native_result.0);
            }
        }
        assert_eq!(lines.0, lines.1, "both find the same for {query}");
        let (guest, native) = (median_us(&mut guest) / 1000.0, median_us(&mut native) / 1000.0);
        report.add_reference(&format!("`rg -j1` for {name}, 100 MB, p50"), native, "ms");
        report.add_reference(&format!("file_search for {name}, 100 MB, p50"), guest, "ms");
        report.check_at_most("… as a multiple of ripgrep", guest / native, 3.5, "×");
    }
}

async fn search(
    registry: &ToolRegistry,
    query: &str,
    regex: bool,
    case_sensitive: bool,
) -> (Duration, usize) {
    let arguments =
        json!({"query": query, "path": "/shared/source", "regex": regex, "case_sensitive": case_sensitive});
    let start = Instant::now();
    let answer = CallOutcome::run(registry, "file_search", arguments).await;
    let elapsed = start.elapsed();
    let matching_lines =
        answer.0.details["matching_lines"].as_u64().unwrap_or_else(|| panic!("{:?}", answer.0));
    (elapsed, usize::try_from(matching_lines).expect("few"))
}

#[expect(clippy::disallowed_methods, reason = "the measure that the budget names")]
fn native_search(
    program: &Path,
    fixture: &Fixture,
    query: &str,
    regex: bool,
    case_sensitive: bool,
) -> (Duration, usize) {
    let mut command = Command::new(program);
    command.args(["--no-config", "-j1", "--line-number"]);
    if !regex {
        command.arg("--fixed-strings");
    }
    if !case_sensitive {
        command.arg("--ignore-case");
    }
    command.arg("--").arg(query).arg(fixture.shared("source")).stderr(Stdio::null());
    let start = Instant::now();
    let output = command.output().expect("rg runs");
    (start.elapsed(), output.stdout.iter().filter(|byte| **byte == b'\n').count())
}

/// Returns the path of ripgrep if it is installed.
pub(crate) fn ripgrep() -> Option<PathBuf> {
    let path = std::env::var_os("PATH")?;
    std::env::split_paths(&path).map(|folder| folder.join("rg")).find(|file| file.is_file())
}

/// Copies Rust source from cargo's home: the same files each time.
fn corpus(fixture: &Fixture) -> u64 {
    let home = std::env::var_os("CARGO_HOME").map(PathBuf::from);
    let home =
        home.or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo"))).expect("a home");
    let mut folders = vec![home.join("registry/src")];
    let (mut bytes, mut number) = (0, 0);
    while let Some(folder) = folders.pop() {
        let mut entries: Vec<PathBuf> =
            fs::read_dir(&folder).expect("readable").map(|entry| entry.expect("readable").path()).collect();
        entries.sort();
        for path in entries {
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") && bytes < CORPUS_BYTES {
                let source = fs::read(&path).expect("readable");
                bytes += source.len() as u64;
                fixture.put(&format!("source/{}/{number}.rs", number / 100), source);
                number += 1;
            }
        }
    }
    bytes
}
