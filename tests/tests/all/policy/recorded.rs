//! `explain --row`: recorded calls under the policy of their time.

use std::fs;

use portcullis_testing::Fixture;
use portcullis_tools::audit::{Row, RowEvent};
use serde_json::{Value, json};

use crate::modules::{portcullis, stderr, stdout};

#[track_caller]
fn explain_row(fixture: &Fixture, row: &Row, code: i32) -> Value {
    let output = portcullis(fixture, &["explain", "--json", "--row", &row.seq.to_string()]);
    assert_eq!(output.status.code(), Some(code), "{}{}", stdout(&output), stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("JSON")
}

#[track_caller]
fn check_refused(fixture: &Fixture, seq: u64, expected: &str) {
    let output = portcullis(fixture, &["explain", "--row", &seq.to_string()]);
    assert_eq!(output.status.code(), Some(2), "{}", stdout(&output));
    assert!(stderr(&output).contains(expected), "{expected}: {}", stderr(&output));
}

/// Returns the last row about a call of a tool.
fn last(fixture: &Fixture, tool: &str) -> Row {
    let mut rows = fixture.all_rows().into_iter();
    rows.rfind(|row| row.event == RowEvent::End && &*row.tool == tool).expect("a row")
}

#[test]
fn a_row_is_explained_under_the_policy_of_its_time() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    for (words, code) in [
        (["call", "file_read", r#"{"path":"a.txt"}"#], 0),
        (["call", "file_write", r#"{"path":"/vault/x","content":"x"}"#], 3),
        (["call", "web_fetch", r#"{"url":"https://example.com/"}"#], 3),
        (["call", "vault_copyto", r#"{"source_path":"/vault/none","destination_path":"/shared/x"}"#], 1),
    ] {
        assert_eq!(portcullis(&fixture, &words).status.code(), Some(code), "{words:?}");
    }
    // The current policy allows none of the recorded calls.
    let fixture = fixture.with_policy("[tools.file_write]\nenabled = false\n").with_policy_edit(
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }",
        "[profiles.FileReadOnly]\nmounts = { tmp = \"read\" }",
    );
    let read = explain_row(&fixture, &last(&fixture, "file_read"), 0);
    assert_eq!((&read["verdict"], &read["subject"]), (&json!("allow"), &json!("/shared/a.txt")), "{read}");
    assert_eq!((&read["recorded"]["agrees"], &read["recorded"]["decision"]), (&json!(true), &json!("allow")));
    let file = read["place"]["file"].as_str().expect("a file");
    assert!(file.contains("/policies/") && file.ends_with(".toml"), "{read}");
    let denied = explain_row(&fixture, &last(&fixture, "file_write"), 3);
    assert_eq!(
        (&denied["code"], &denied["recorded"]["code"]),
        (&json!("mount_not_granted"), &json!("mount_not_granted"))
    );
    assert_eq!(denied["recorded"]["agrees"], true, "{denied}");
    // There was no approver, so the row says denied although the policy's answer was to ask.
    let asked = explain_row(&fixture, &last(&fixture, "web_fetch"), 0);
    assert_eq!(
        (&asked["verdict"], &asked["recorded"]["decision"]),
        (&json!("ask"), &json!("deny")),
        "{asked}"
    );
    let step = explain_row(&fixture, &last(&fixture, "vault_copyto_read"), 0);
    assert_eq!(
        (&step["subject"], &step["recorded"]["agrees"]),
        (&json!("/vault/none"), &json!(true)),
        "{step}"
    );
    let text =
        stdout(&portcullis(&fixture, &["explain", "--row", &last(&fixture, "file_write").seq.to_string()]));
    assert!(text.starts_with("DENY  mount_not_granted\n"), "{text}");
    assert!(
        text.contains("  recorded deny mount_not_granted by profiles.FileReadWrite.mounts.vault\n"),
        "{text}"
    );
    assert!(text.contains("  recorded the row agrees: deny\n"), "{text}");
}

#[test]
fn a_row_is_explained_with_the_labels_of_its_time() {
    let fixture = Fixture::new();
    fs::write(fixture.workspace().join("vault/key"), "k").expect("written");
    // A run's labels are in its process's memory, and each call is a separate process, so edit the row.
    let rows = fixture.root().join("state/audit.jsonl");
    let words = ["call", "file_read", r#"{"path":"/vault/key"}"#];
    assert!(portcullis(&fixture, &words).status.success());
    let text = fs::read_to_string(&rows).expect("readable");
    assert!(text.contains("\"labels\":[]"), "{text}");
    // `explain --row` only reads the row and does not verify the chain.
    fs::write(&rows, text.replace("\"labels\":[]", "\"labels\":[\"web\"]")).expect("written");
    let read = explain_row(&fixture, &last(&fixture, "file_read"), 0);
    let chain = read["chain"].to_string();
    assert!(chain.contains("flow[") && chain.contains("none of these sinks"), "{chain}");
}

#[test]
fn rows_without_a_call_or_a_policy_are_reported() {
    let fixture = Fixture::new();
    check_refused(&fixture, 1, "the audit log cannot be read");
    assert_eq!(portcullis(&fixture, &["call", "file_list"]).status.code(), Some(0));
    assert_eq!(portcullis(&fixture, &["call", "nothing"]).status.code(), Some(1));
    let rows = fixture.all_rows();
    let start = rows.iter().find(|row| row.event == RowEvent::Start).expect("a row");
    check_refused(&fixture, start.seq, "is not about a call: it is of the kind `start`");
    check_refused(&fixture, last(&fixture, "nothing").seq, "has no decision");
    check_refused(&fixture, 9999, "the audit log has no row 9999; its last row is ");
    check_refused(&fixture, 0, "the audit log has no row 0");
    let row = last(&fixture, "file_list");
    let digest = row.policy_digest.clone().expect("a digest");
    let folder = fixture.state().join("policies");
    let json = folder.join(format!("{digest}.json"));
    let kept = fs::read(&json).expect("readable");
    fs::write(&json, [kept.as_slice(), b" "].concat()).expect("written");
    check_refused(&fixture, row.seq, "is not the policy of row");
    fs::remove_file(&json).expect("removed");
    check_refused(&fixture, row.seq, "cannot be read from");
    // A changed text under the same name is reported, because the name is the hash of the JSON.
    fs::write(&json, kept).expect("written");
    let toml = folder.join(format!("{digest}.toml"));
    let text = fs::read_to_string(&toml).expect("readable");
    fs::write(&toml, text.replace("concurrency = 10", "concurrency = 11")).expect("written");
    let shown = explain_row(&fixture, &row, 0);
    let not_seen = shown["not_looked_at"].to_string();
    assert!(not_seen.contains("differs from the hashed policy in: limits"), "{not_seen}");
    fs::write(&toml, "mistake").expect("written");
    check_refused(&fixture, row.seq, "cannot be loaded");
    let log = fixture.state().join("audit.jsonl");
    let text = fs::read_to_string(&log).expect("readable");
    fs::write(&log, text.replace(&*digest, &"../x".repeat(16))).expect("written");
    check_refused(&fixture, row.seq, "names no policy");
}

#[test]
fn tools_of_modules_are_among_all_tools() {
    let module = crate::hostile::wat_guest::WatGuest::new("mine").bytes();
    let fixture = Fixture::new().with_policy(
        "[modules]\ndir = \"modules\"\n[tools.mine]\nprofile = \"WorkspaceRead\"\napproval = \"allow\"\n",
    );
    fs::create_dir(fixture.root().join("modules")).expect("the folder can be made");
    fs::write(fixture.root().join("modules/m.wasm"), module).expect("written");
    let all = |path: &str, code: i32| -> Vec<Value> {
        let output = portcullis(&fixture, &["explain", "--json", "--all-tools", path]);
        assert_eq!(output.status.code(), Some(code), "{}", stderr(&output));
        serde_json::from_str(&stdout(&output)).expect("JSON")
    };
    let verdict = |answers: &[Value]| {
        answers.iter().find(|answer| answer["tool"] == "mine").map(|answer| answer["verdict"].clone())
    };
    assert_eq!(verdict(&all("/shared/x", 0)), Some(json!("allow")));
    assert_eq!(verdict(&all("/vault/x", 0)), Some(json!("deny")), "its profile has no vault");
    let alone = portcullis(&fixture, &["explain", "mine", "/vault/x"]);
    assert_eq!(alone.status.code(), Some(3), "{}", stdout(&alone));
}
