//! The cost of keeping a mount's changes for undo: for a command that changes a few files of a large mount,
//! for each change of a command that changes many, and for a file tool. Also the time of `portcullis undo`.
//!
//! The same mount is reached through two policies, one of which keeps its changes. Rounds of both alternate.

use std::time::{Duration, Instant};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::ToolRegistry;
use serde_json::{Value, json};

use crate::{process, report::Report, sample::median_us};

const LARGE_FILES: usize = 1_000;
const LARGE_FILE_BYTES: usize = 1_000_000;
const CHANGED_FILES: usize = 10;
/// Files that one command creates and removes. Each is two changes.
const MANY_FILES: usize = 2_000;
const ROUNDS: usize = 9;
const WRITES: usize = 200;

pub(crate) async fn keeping(report: &mut Report) {
    let kept =
        Fixture::new().with_policy_edit("shared = \"shared\"", "shared = { path = \"shared\", undo = true }");
    let folder = kept.shared("");
    let folder = folder.to_str().expect("UTF-8").trim_end_matches('/');
    let plain = Fixture::new().with_policy_edit("shared = \"shared\"", &format!("shared = \"{folder}\""));
    for number in 0..LARGE_FILES {
        kept.put(&format!("large-{number}"), vec![b'a'; LARGE_FILE_BYTES]);
    }
    let mounts = Mounts { plain: plain.registry_with_shell().await, kept: kept.registry_with_shell().await };
    few_changes(&mounts, &kept, report).await;
    many_changes(&mounts, report).await;
    writes(&mounts, report).await;
}

/// The registries of the two policies.
struct Mounts {
    plain: ToolRegistry,
    kept: ToolRegistry,
}

async fn few_changes(mounts: &Mounts, kept: &Fixture, report: &mut Report) {
    let command = format!("for i in {{1..{CHANGED_FILES}}}; do echo x >> large-$i; done");
    let (plain, with_undo) = mounts.compare("shell_exec", |_| json!({"command": command}), ROUNDS).await;
    report.add_reference("a command that changes 10 files of 1 GB, p50", plain / 1000.0, "ms");
    report.add_reference("… with undo, p50", with_undo / 1000.0, "ms");
    report.check_at_most("… what undo adds", (with_undo - plain) / 1000.0, 100.0, "ms");
    let mut undo_times = Vec::with_capacity(ROUNDS);
    for _ in 0..ROUNDS {
        CallOutcome::run(&mounts.kept, "shell_exec", json!({"command": command})).await;
        let start = Instant::now();
        let output = process::command(kept, &kept.state()).arg("undo").output().expect("starts");
        undo_times.push(start.elapsed());
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    }
    report.check_at_most(
        "`portcullis undo` of that command as a process, p50",
        median_us(&mut undo_times) / 1000.0,
        100.0,
        "ms",
    );
}

async fn many_changes(mounts: &Mounts, report: &mut Report) {
    let command = format!(
        "mkdir many; cd many; for ((i = 0; i < {MANY_FILES}; i++)); do : > $i; done; cd ..; rm -r many"
    );
    let (plain, with_undo) = mounts.compare("shell_exec", |_| json!({"command": command}), ROUNDS).await;
    let changes = 2.0 * MANY_FILES as f64;
    report.add_reference("a command that makes and removes 2 000 files, p50", plain / 1000.0, "ms");
    report.add_reference("… with undo, p50", with_undo / 1000.0, "ms");
    report.check_at_most("… what undo adds to each change", (with_undo - plain) / changes, 100.0, "µs");
}

async fn writes(mounts: &Mounts, report: &mut Report) {
    let arguments =
        |number: usize| json!({"path": format!("/shared/written-{number}.txt"), "content": "A text.\n"});
    let (plain, with_undo) = mounts.compare("file_write", arguments, WRITES).await;
    report.add_reference("file_write of a new file, p50", plain, "µs");
    report.check_at_most("… what undo adds", with_undo - plain, 500.0, "µs");
}

impl Mounts {
    /// Returns the medians of a call without and with undo, in microseconds.
    async fn compare(&self, tool: &str, arguments: impl Fn(usize) -> Value, rounds: usize) -> (f64, f64) {
        let (mut plain, mut kept) = (Vec::with_capacity(rounds), Vec::with_capacity(rounds));
        // The first round creates the sessions.
        for round in 0..=rounds {
            let plain_time = time(&self.plain, tool, arguments(2 * round)).await;
            let kept_time = time(&self.kept, tool, arguments(2 * round + 1)).await;
            if round > 0 {
                plain.push(plain_time);
                kept.push(kept_time);
            }
        }
        (median_us(&mut plain), median_us(&mut kept))
    }
}

async fn time(registry: &ToolRegistry, tool: &str, arguments: Value) -> Duration {
    let start = Instant::now();
    let answer = CallOutcome::run(registry, tool, arguments).await;
    let took = start.elapsed();
    // `text` panics for a refused call, whose time must not count.
    let _ = answer.text();
    took
}
