//! `policy tighten` through the program: an overlay from the audit log, with its proofs.

use std::{fs, path::Path};

use portcullis_testing::Fixture;
use portcullis_tools::OVERLAY_FILE;

use super::write_overlay;
use crate::modules::{portcullis, stderr, stdout};

#[track_caller]
fn tighten(fixture: &Fixture, words: &[&str]) -> String {
    let output = portcullis(fixture, &[&["policy", "tighten"], words].concat());
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    stdout(&output)
}

fn call(fixture: &Fixture, tool: &str, arguments: &str, code: i32) {
    let output = portcullis(fixture, &["call", tool, arguments]);
    assert_eq!(output.status.code(), Some(code), "{tool} {arguments}: {}", stderr(&output));
}

/// Uses the printed overlay, and returns the printed differences.
fn use_overlay(fixture: &Fixture, overlay: &str) {
    write_overlay(fixture, overlay);
    let output = portcullis(fixture, &["policy", "check"]);
    assert!(output.status.success(), "{overlay}\n{}", stderr(&output));
}

#[test]
fn unused_grants_are_removed_and_used_ones_stay() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    for _ in 0..2 {
        call(&fixture, "file_read", r#"{"path":"a.txt"}"#, 0);
        call(&fixture, "file_write", r#"{"path":"b.txt","content":"b"}"#, 0);
    }
    call(&fixture, "file_write", r#"{"path":"/vault/x","content":"x"}"#, 3);
    let overlay = tighten(&fixture, &["--min-calls", "2"]);
    assert!(overlay.contains("# FileReadOnly: /vault read → none. 0 of 2 calls used it.\n"), "{overlay}");
    assert!(overlay.contains("# FileReadOnly: /shared read → kept. 2 of 2 calls used it.\n"), "{overlay}");
    assert!(overlay.contains("# FileReadOnly: never called: file_list, file_search\n"), "{overlay}");
    assert!(overlay.contains("NARROWER file_read: /vault read → none\n"), "{overlay}");
    assert!(
        overlay.contains("# Proof 1, `policy diff`: ") && overlay.contains(", all NARROWER.\n"),
        "{overlay}"
    );
    assert!(
        overlay.contains("# Proof 2, replay of these rows: 5 calls, 0 decided differently.\n"),
        "{overlay}"
    );
    assert!(overlay.contains("[profiles.FileReadOnly]\nmounts = { "), "{overlay}");
    use_overlay(&fixture, &overlay);
    call(&fixture, "file_read", r#"{"path":"a.txt"}"#, 0);
    call(&fixture, "file_read", r#"{"path":"/vault/key"}"#, 3);
    // The second run reduces nothing further, and keeps the workspace's overlay.
    let again = tighten(&fixture, &["--min-calls", "2"]);
    assert!(again.contains("vault = \"none\""), "{again}");
}

#[test]
fn write_becomes_read_where_no_call_wrote() {
    let fixture = Fixture::new().with_policy_edit(
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }",
        "[profiles.FileReadOnly]\nmounts = { shared = \"write\", tmp = \"read\" }",
    );
    fixture.put("a.txt", "a");
    call(&fixture, "file_read", r#"{"path":"a.txt"}"#, 0);
    let overlay = tighten(&fixture, &["--min-calls", "1"]);
    assert!(overlay.contains("/shared write → read. 1 of 1 calls used it, none wrote."), "{overlay}");
    assert!(overlay.contains("shared = \"read\""), "{overlay}");
    use_overlay(&fixture, &overlay);
}

#[test]
fn too_few_calls_and_no_log_take_nothing_away() {
    let fixture = Fixture::new();
    let overlay = tighten(&fixture, &[]);
    assert!(overlay.contains("left alone. 0 calls are fewer than 50."), "{overlay}");
    assert!(overlay.lines().all(|line| line.is_empty() || line.starts_with('#')), "{overlay}");
    use_overlay(&fixture, &overlay);
    call(&fixture, "file_list", "{}", 0);
    let overlay = tighten(&fixture, &[]);
    assert!(overlay.contains("FileReadOnly: left alone. 1 calls are fewer than 50."), "{overlay}");
    let output = portcullis(&fixture, &["policy", "tighten", "--since", "soon"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn an_unobserved_call_and_the_shell_are_left_alone() {
    let fixture = Fixture::new();
    call(&fixture, "file_list", "{}", 0);
    let log = fixture.state().join("audit.jsonl");
    let text = fs::read_to_string(&log).expect("readable");
    let (before, rest) = text.split_once("\"touched\":[").expect("a field");
    let (_, after) = rest.split_once(']').expect("its end");
    fs::write(&log, format!("{before}\"touched\":null{after}")).expect("written");
    let overlay = tighten(&fixture, &["--min-calls", "1"]);
    assert!(overlay.contains("left alone. The accesses of 1 of 1 calls are not known."), "{overlay}");
    assert!(overlay.contains("# The mounts of [shell] are left alone"), "{overlay}");
    assert!(!overlay.contains("\n[shell"), "{overlay}");
}

#[test]
fn an_overlay_is_extended_and_a_file_is_never_overwritten() {
    let fixture = Fixture::new();
    write_overlay(
        &fixture,
        "# ours\n[limits]\nconcurrency = 3 # few\n[profiles.FileReadOnly]\nmounts = { tmp = \"none\" }\n",
    );
    fixture.put("a.txt", "a");
    call(&fixture, "file_read", r#"{"path":"a.txt"}"#, 0);
    let out = fixture.root().join("tighter.toml");
    let words = ["--min-calls", "1", "--out", out.to_str().expect("the path is UTF-8")];
    assert_eq!(tighten(&fixture, &words), "");
    let overlay = fs::read_to_string(&out).expect("written");
    assert!(overlay.contains("concurrency = 3 # few") && overlay.contains("# ours"), "{overlay}");
    assert!(overlay.contains("tmp = \"none\"") && overlay.contains("vault = \"none\""), "{overlay}");
    use_overlay(&fixture, &overlay);
    let words = ["policy", "tighten", "--out", out.to_str().expect("the path is UTF-8")];
    let output = portcullis(&fixture, &words);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stderr(&output).contains("cannot write `"), "{}", stderr(&output));
    assert!(Path::new(&fixture.workspace().join(OVERLAY_FILE)).exists());
}

/// A flow rule asks about writes to a mount. Without the mount the same call would not ask, so the profile
/// is not reduced.
#[test]
fn a_reduction_that_would_spare_a_question_is_withdrawn() {
    let fixture = Fixture::new()
        .with_policy("[[flow]]\nafter = [\"mount:shared\"]\nthen = [\"write:tmp\"]\napproval = \"ask\"\n");
    call(&fixture, "file_write", r#"{"path":"b.txt","content":"b"}"#, 0);
    let log = fixture.state().join("audit.jsonl");
    let text = fs::read_to_string(&log).expect("readable");
    // Edit the row as if the run had read the mount before, and an approver had agreed.
    let text = text.replace("\"labels\":[]", "\"labels\":[\"mount:shared\"]");
    fs::write(&log, text.replace("\"approval\":\"not_required\"", "\"approval\":\"approved\""))
        .expect("written");
    let overlay = tighten(&fixture, &["--min-calls", "1"]);
    assert!(
        overlay
            .contains("FileReadWrite: left alone. With less, a recorded call would be decided differently."),
        "{overlay}"
    );
    assert!(overlay.contains("0 decided differently"), "{overlay}");
}
