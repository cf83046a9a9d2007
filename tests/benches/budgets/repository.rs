//! `file_search` and `file_list` over a repository of 100,000 files, compared with ripgrep with one thread.
//!
//! Most of the time goes into walking the folders and opening small files. `search.rs` measures the search of
//! content instead.

use std::{
    path::Path,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::ToolRegistry;
use serde_json::{Value, json};

use crate::{report::Report, sample::median_us, search::ripgrep};

const FOLDERS: usize = 2_000;
const FILES_PER_FOLDER: usize = 50;
/// One in this many folders has an ignore file and a folder that the file excludes.
const IGNORING_FOLDERS: usize = 20;
/// The searched word. One in `FILES_PER_WORD` files has it.
const WORD: &str = "haystack_needle";
const FILES_PER_WORD: usize = 1_000;
const ROUNDS: usize = 7;

pub(crate) async fn walking(registry: &ToolRegistry, fixture: &Fixture, report: &mut Report) {
    let Some(ripgrep) = ripgrep() else {
        report.add_not_compared("walks over 100 000 files", "ripgrep (`rg`) is not installed");
        return;
    };
    make_repository(fixture);
    let root = fixture.shared("repository");
    let search = json!({"query": WORD, "path": "/shared/repository"});
    let by_ripgrep = ["--line-number", "--fixed-strings", "--", WORD];
    let walk = Walk { registry, ripgrep: &ripgrep, root: &root, note: "" };
    compare(walk, "file_search", search.clone(), &by_ripgrep, report).await;
    let hiding = hiding(fixture);
    let registry_of_project = hiding.registry().await;
    let walk = Walk { registry: &registry_of_project, note: ", with hidden names", ..walk };
    compare(walk, "file_search", search, &by_ripgrep, report).await;
    // `file_list` does not read ignore files, and it sorts.
    let list = json!({"path": "/shared/repository", "depth": 16});
    let by_ripgrep = ["--files", "--no-ignore", "--hidden", "--sort", "path"];
    let walk = Walk { registry, ripgrep: &ripgrep, root: &root, note: "" };
    compare(walk, "file_list", list, &by_ripgrep, report).await;
}

/// Creates a fixture with the same folder whose policy hides names, as a project's policy does.
fn hiding(fixture: &Fixture) -> Fixture {
    let folder = fixture.workspace().join("shared");
    let folder = folder.to_str().expect("UTF-8");
    Fixture::new().with_policy_edit("shared = \"shared\"", &format!("shared = \"{folder}\"")).with_policy(
        r#"
[hide]
paths = [".env", ".env.*", "*.pem", "*.key", "*.p12", "*.pfx", "*.kdbx", "id_rsa*", "id_ed25519*", "id_ecdsa*",
    "id_dsa*", ".aws", ".azure", ".gnupg", ".ssh", ".kube", ".netrc", ".pgpass", ".pypirc", ".git-credentials"]
"#,
    )
}

#[derive(Clone, Copy)]
struct Walk<'w> {
    registry: &'w ToolRegistry,
    ripgrep: &'w Path,
    root: &'w Path,
    note: &'w str,
}

async fn compare(walk: Walk<'_>, tool: &str, arguments: Value, by_ripgrep: &[&str], report: &mut Report) {
    let (mut guest, mut native) = (Vec::new(), Vec::new());
    // The first round fills the page cache.
    for round in 0..=ROUNDS {
        let start = Instant::now();
        let answer = CallOutcome::run(walk.registry, tool, arguments.clone()).await;
        let guest_time = start.elapsed();
        let (native_time, native_lines) = native_walk(walk, by_ripgrep);
        match tool {
            "file_search" => assert_eq!(answer.0.details["matching_lines"], native_lines, "{answer:?}"),
            _ => assert!(answer.0.original_bytes >= 24 * native_lines as u64, "every file is listed"),
        }
        if round > 0 {
            guest.push(guest_time);
            native.push(native_time);
        }
    }
    let (guest, native) = (median_us(&mut guest) / 1000.0, median_us(&mut native) / 1000.0);
    let note = walk.note;
    report.add_reference(&format!("`rg -j1` like {tool}, 100 000 files, p50"), native, "ms");
    report.add_reference(&format!("{tool}, 100 000 files{note}, p50"), guest, "ms");
    report.check_at_most("… as a multiple of ripgrep", guest / native, 2.0, "×");
}

#[expect(clippy::disallowed_methods, reason = "the measure that the budget names")]
fn native_walk(walk: Walk<'_>, arguments: &[&str]) -> (Duration, usize) {
    let mut command = Command::new(walk.ripgrep);
    command.args(["--no-config", "-j1", "--no-require-git"]).args(arguments).arg(walk.root);
    let start = Instant::now();
    let output = command.stdin(Stdio::null()).stderr(Stdio::null()).output().expect("rg runs");
    (start.elapsed(), output.stdout.iter().filter(|byte| **byte == b'\n').count())
}

/// Makes 100,000 small files, some of which ignore files exclude.
fn make_repository(fixture: &Fixture) {
    fixture.put(
        "repository/.gitignore",
        "# Builds and packages.\n/target/\nnode_modules/\n*.log\n*.tmp\n!keep.log\n",
    );
    for folder in 0..FOLDERS {
        let path = match folder % IGNORING_FOLDERS {
            1 => format!("repository/part-{:02}/folder-{folder:04}/node_modules/package", folder % 40),
            2 => format!("repository/target/part-{:02}/folder-{folder:04}", folder % 40),
            _ => format!("repository/part-{:02}/folder-{folder:04}", folder % 40),
        };
        if folder % IGNORING_FOLDERS == 0 {
            fixture.put(&format!("{path}/.gitignore"), "/generated.rs\n/build/*.o\n");
        }
        for file in 0..FILES_PER_FOLDER {
            let number = folder * FILES_PER_FOLDER + file;
            let name = match file {
                0 => "generated.rs".to_owned(),
                1 => "output.log".to_owned(),
                _ => format!("source-{file:02}.rs"),
            };
            fixture.put(&format!("{path}/{name}"), source_text(number));
        }
    }
}

/// Creates some 400 to 2,000 bytes of text.
fn source_text(number: usize) -> String {
    let mut text = format!("//! File {number}.\n\n");
    for line in 0..10 + number % 40 {
        text.push_str(&format!("pub fn function_{line}() -> usize {{ {number} }}\n"));
    }
    if number % FILES_PER_WORD == FILES_PER_WORD / 2 {
        text.push_str(WORD);
        text.push('\n');
    }
    text
}
