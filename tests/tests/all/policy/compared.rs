//! `policy diff` and `audit replay` through the program.

use std::{fs, path::PathBuf};

use portcullis_testing::Fixture;
use portcullis_tools::policy::DEFAULT_POLICY;
use serde_json::{Value, json};

use crate::modules::{portcullis, stderr, stdout};

/// Writes a policy file beside the fixture's own: the shipped policy with one part replaced.
fn policy(fixture: &Fixture, name: &str, from: &str, to: &str) -> PathBuf {
    assert!(DEFAULT_POLICY.contains(from), "{from}");
    let path = fixture.root().join(name);
    fs::write(&path, DEFAULT_POLICY.replacen(from, to, 1)).expect("written");
    path
}

#[track_caller]
fn json_of(fixture: &Fixture, words: &[&str], code: i32) -> Value {
    let output = portcullis(fixture, words);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

/// Returns the output without the spaces that align its columns.
fn plain(output: &std::process::Output) -> String {
    stdout(output).split_whitespace().collect::<Vec<_>>().join(" ")
}

const CHANGED_SECTION: &str = "[tools.file_read] ";

#[test]
fn a_wider_policy_has_exit_code_one_and_says_what_is_wider() {
    let fixture = Fixture::new();
    let narrow = policy(
        &fixture,
        "narrow.toml",
        CHANGED_SECTION,
        "[tools.file_write]\napproval = \"ask\"\n[tools.file_read] ",
    );
    let narrow = narrow.to_string_lossy();
    let diff = json_of(&fixture, &["policy", "diff", "--json", &narrow, "default"], 1);
    let changes = diff["changes"].as_array().expect("a list");
    assert_eq!(changes.len(), 1, "{diff}");
    assert_eq!(changes[0]["direction"], "wider");
    assert_eq!(
        (&changes[0]["subject"], &changes[0]["old"], &changes[0]["new"]),
        (&json!("file_write"), &json!("ask"), &json!("allow"))
    );
    let diff = json_of(&fixture, &["policy", "diff", "--json", "default", &narrow], 0);
    assert_eq!(diff["changes"][0]["direction"], "narrower");
    let same = portcullis(&fixture, &["policy", "diff", "default", "default"]);
    assert_eq!((stdout(&same).as_str(), same.status.code()), ("the same meaning\n", Some(0)));
    let text = plain(&portcullis(&fixture, &["policy", "diff", &narrow, "default"]));
    assert!(text.contains("WIDER file_write: calls ask allow"), "{text}");
    for (words, expected) in [
        (["policy", "diff", "default", "absent.toml"], "absent.toml"),
        (
            ["policy", "diff", "0123456789", "default"],
            "0 kept policies have a digest that begins with `0123456789`",
        ),
    ] {
        let output = portcullis(&fixture, &words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(stderr(&output).contains(expected), "{}", stderr(&output));
    }
}

#[test]
fn recorded_calls_are_decided_again() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    for (words, code) in [
        (["call", "file_read", r#"{"path":"a.txt"}"#], 0),
        (["call", "file_read", r#"{"path":"/vault/none"}"#], 1),
        (["call", "file_write", r#"{"path":"/vault/x","content":"x"}"#], 3),
        (["call", "file_write", r#"{"path":"b.txt","content":"x"}"#], 0),
        (["call", "nothing", "{}"], 1),
    ] {
        assert_eq!(portcullis(&fixture, &words).status.code(), Some(code), "{words:?}");
    }
    let state = fixture.state();
    let replay = |policy: &PathBuf, code| {
        let workspace = fixture.workspace();
        let words = [
            "audit",
            "replay",
            "--json",
            "--workspace",
            &workspace.to_string_lossy(),
            "--state",
            &state.to_string_lossy(),
            "--policy",
            &policy.to_string_lossy(),
        ]
        .map(str::to_owned);
        #[expect(clippy::disallowed_methods, reason = "the program under test, under another policy")]
        let output =
            std::process::Command::new(portcullis_testing::binary()).args(words).output().expect("starts");
        assert_eq!(output.status.code(), Some(code), "{}{}", stdout(&output), stderr(&output));
        serde_json::from_str::<Value>(&stdout(&output)).expect("JSON")
    };
    let same = replay(&fixture.policy_file(), 0);
    assert_eq!(
        (&same["calls"], &same["same"], &same["changed"]),
        (&json!(4), &json!(4), &json!([])),
        "{same}"
    );
    assert_eq!(same["undecided"], 1, "the policy was not asked about a tool that does not exist");
    let narrow = policy(
        &fixture,
        "narrow.toml",
        CHANGED_SECTION,
        "[tools.file_write]\nenabled = false\n[tools.file_read] ",
    );
    let narrow = replay(&narrow, 0);
    let changed = &narrow["changed"][0];
    assert_eq!(
        (&changed["tool"], &changed["was"], &changed["would"]),
        (&json!("file_write"), &json!("allow"), &json!("deny"))
    );
    assert_eq!(
        (&changed["calls"], &changed["rule"]),
        (&json!(1), &json!("tools.file_write.enabled")),
        "{narrow}"
    );
    let wide = policy(
        &fixture,
        "wide.toml",
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }",
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\" }",
    );
    let wide = replay(&wide, 0);
    assert_eq!(wide["changed"][0]["would"], "deny", "a read of the vault is refused now: {wide}");

    // Compare with the log's policy, by the digest in its rows.
    let digest = fixture.rows()[0].policy_digest.clone().expect("a digest");
    let diff = json_of(&fixture, &["policy", "diff", "--json", "--log", &digest[..12], "default"], 0);
    assert_eq!((&diff["changes"], &diff["replay"]["same"]), (&json!([]), &json!(4)), "{diff}");
}

#[test]
fn a_call_that_was_refused_and_would_run_is_wider() {
    let fixture = Fixture::new().with_policy("[tools.file_write]\nenabled = false\n");
    let words = ["call", "file_write", r#"{"path":"b.txt","content":"x"}"#];
    assert_eq!(portcullis(&fixture, &words).status.code(), Some(3));
    let digest = fixture.rows()[0].policy_digest.clone().expect("a digest");
    let output = portcullis(&fixture, &["policy", "diff", "--log", &digest, "default"]);
    assert_eq!(output.status.code(), Some(1));
    let text = plain(&output);
    assert!(text.contains("WIDER file_write: calls deny allow"), "{text}");
    assert!(text.contains("1 calls: 0 same, 1 decided differently"), "{text}");
    // Without the kept policy, the recorded answer counts.
    fs::remove_dir_all(fixture.state().join("policies")).expect("removed");
    let fresh = policy(&fixture, "fresh.toml", "concurrency = 10", "concurrency = 10");
    let output = portcullis(&fixture, &["policy", "diff", "--log", "default", &fresh.to_string_lossy()]);
    assert_eq!(output.status.code(), Some(1), "{}", stdout(&output));
    assert!(stdout(&output).contains("wider"), "{}", stdout(&output));
}
