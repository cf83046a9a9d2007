//! `portcullis audit log`: filters, the newest rows first, `--follow`, and damaged logs.

use std::{
    fs,
    io::{BufRead as _, BufReader, Write as _},
    process::{Command, Stdio},
};

use portcullis_testing::{Fixture, binary};
use portcullis_tools::audit;
use serde_json::Value;

use crate::modules::portcullis;

/// Creates a fixture with calls of two tools and two runs, one of them denied.
fn with_calls() -> Fixture {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    for (words, code) in [
        (&["call", "file_read", r#"{"path":"a.txt"}"#, "--run", "one"][..], 0),
        (&["call", "file_write", r#"{"path":"/tmp/b","content":"b"}"#, "--run", "two"], 0),
        (&["call", "file_write", r#"{"path":"/vault/c","content":"c"}"#, "--run", "two"], 3),
    ] {
        assert_eq!(portcullis(&fixture, words).status.code(), Some(code), "{words:?}");
    }
    fixture
}

/// Returns the rows that match the filters, as `event tool`.
fn listed(fixture: &Fixture, filters: &[&str]) -> Vec<String> {
    let output = portcullis(fixture, &[&["audit", "log", "--json"], filters].concat());
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    let row = |line: &str| {
        let row: Value = serde_json::from_str(line).expect("JSON");
        format!("{} {}", row["event"].as_str().expect("a word"), row["tool"].as_str().unwrap_or("–"))
    };
    text.lines().map(row).collect()
}

#[test]
fn filters_leave_the_rows_that_meet_all_of_them() {
    let fixture = with_calls();
    let write_rows = ["begin file_write", "end file_write", "end file_write"];
    for (filters, expected) in [
        (&["--tool", "file_read"][..], &["end file_read"][..]),
        (&["--run", "two"], &write_rows),
        (&["--run", "two", "--decision", "deny"], &["end file_write"]),
        (&["--run", "two", "--run", "one", "--event", "begin"], &["begin file_write"]),
        (&["--in-mount", "vault"], &["end file_write"]),
        (&["--path", "/tmp"], &["begin file_write", "end file_write"]),
        (&["--path", "/shared/*.txt"], &["end file_read"]),
        (&["--agent", "nobody"], &[]),
        (&["--event", "stop", "--limit", "1"], &["stop –"]),
        (&["--until", "1h"], &[]),
        (&["--since", "1h", "--tool", "file_read"], &["end file_read"]),
        (&["--limit", "0", "--tool", "file_write"], &write_rows),
    ] {
        assert_eq!(listed(&fixture, filters), expected, "{filters:?}");
    }
    let wrong = portcullis(&fixture, &["audit", "log", "--since", "soon"]);
    assert_eq!(wrong.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&wrong.stderr).contains("`--since soon`: it is not a time"), "{wrong:?}");
    let wrong = portcullis(&fixture, &["audit", "log", "--event", "ends"]);
    assert!(
        String::from_utf8_lossy(&wrong.stderr).contains("possible values: begin, end, result, model,"),
        "{wrong:?}"
    );
}

#[test]
fn json_rows_are_the_lines_of_the_log() {
    let fixture = with_calls();
    let log = fs::read_to_string(audit::log_path(&fixture.state())).expect("readable");
    for limit in ["0", "1000"] {
        let output = portcullis(&fixture, &["audit", "log", "--json", "--limit", limit]);
        assert_eq!(String::from_utf8_lossy(&output.stdout), log);
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test, while it runs")]
fn following_shows_the_rows_that_other_processes_write() {
    let fixture = with_calls();
    let mut follower = Command::new(binary())
        .args(["audit", "log", "--follow", "--json", "--limit", "1", "--tool", "file_read"])
        .args(fixture.options())
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let mut lines = BufReader::new(follower.stdout.take().expect("piped")).lines();
    let mut next = || lines.next().expect("a row").expect("readable");
    assert!(next().contains("\"run_id\":\"one\""));
    let words = ["call", "file_read", r#"{"path":"a.txt"}"#, "--run", "three"];
    assert!(portcullis(&fixture, &words).status.success());
    assert!(next().contains("\"run_id\":\"three\""));
    fs::rename(audit::log_path(&fixture.state()), fixture.root().join("moved")).expect("moved");
    assert_eq!(follower.wait().expect("ends").code(), Some(1), "another log would not be followed");
}

/// Returns the peak memory of a process, in KiB.
fn peak_kib(process: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse().ok()).unwrap_or_default()
}

/// Rows are streamed, so the memory does not depend on the length of the log. A reader that kept all rows of
/// this log would need more than its 64 MB.
#[test]
#[expect(clippy::disallowed_methods, reason = "the program under test, while it runs")]
fn the_memory_of_a_reader_does_not_grow_with_the_log() {
    let fixture = with_calls();
    let path = audit::log_path(&fixture.state());
    let rows = fs::read(&path).expect("readable");
    let mut log = fs::File::create(&path).expect("writable");
    // The chain does not matter here: `audit log` does not check it, and `verify` continues after a break.
    for _ in 0..64_000_000 / rows.len() {
        log.write_all(&rows).expect("written");
    }
    drop(log);
    let page = fixture.root().join("page.html");
    for words in [
        &["audit", "log", "--limit", "0", "--json"][..],
        &["audit", "log", "--limit", "0"],
        &["audit", "log", "--agent", "nobody"],
        &["audit", "verify"],
        &["audit", "report", "--html", page.to_str().expect("the path is UTF-8")],
    ] {
        let mut reader = Command::new(binary())
            .args(words)
            .args(fixture.options())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("starts");
        let process = reader.id();
        let mut output = BufReader::with_capacity(1 << 20, reader.stdout.take().expect("piped"));
        let mut peak = 0;
        loop {
            let length = output.fill_buf().expect("readable").len();
            // The memory of a process that has ended cannot be read, so the last value counts.
            peak = peak.max(peak_kib(process));
            if length == 0 {
                break;
            }
            output.consume(length);
        }
        reader.wait().expect("ends");
        assert!(peak < 64 * 1024, "{words:?} used {peak} KiB");
    }
}

#[test]
fn a_damaged_line_is_reported_and_skipped() {
    let fixture = with_calls();
    let path = audit::log_path(&fixture.state());
    let mut log = fs::OpenOptions::new().append(true).open(&path).expect("writable");
    log.write_all(b"\xff\x1b[2J not a row\n").expect("written");
    for limit in ["0", "3"] {
        let output = portcullis(&fixture, &["audit", "log", "--limit", limit]);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(stderr.contains("is not a row") && !stderr.contains('\u{1b}'), "{stderr}");
        assert!(String::from_utf8_lossy(&output.stdout).contains("file_write"));
    }
}
