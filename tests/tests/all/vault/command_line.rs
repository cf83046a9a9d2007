//! The operation from the command line: the output that a person sees.

use std::fs;

use portcullis_testing::Fixture;
use serde_json::Value;

use super::{arguments, assert_content, fixture_with_lines, vault_path};
use crate::modules::{portcullis, stderr, stdout};

#[test]
fn a_copy_is_made_or_refused_and_what_it_touches_is_listed() {
    let fixture = Fixture::new();
    fs::write(vault_path(&fixture, "key"), vec![0xff; 1234]).expect("writable");
    let copied = portcullis(&fixture, &["call", "vault_copyto", &arguments("/vault/key", "key").to_string()]);
    assert_eq!(copied.status.code(), Some(0), "{}", stderr(&copied));
    assert_eq!(stdout(&copied), "copied 1,234 bytes from /vault/key to /shared/key");
    assert_content(&fixture.shared("key"), &[0xff; 1234]);
    assert_eq!(fixture.rows().len(), 5);

    let refused =
        portcullis(&fixture, &["call", "vault_copyto", &arguments("/vault/key", "/vault/x").to_string()]);
    assert_eq!(refused.status.code(), Some(3));
    assert!(stderr(&refused).contains("(writable here: /shared, /tmp)"), "{}", stderr(&refused));
    let step = portcullis(&fixture, &["call", "vault_copyto_read", r#"{"source_path":"/vault/key"}"#]);
    assert_eq!(step.status.code(), Some(1));

    let listing = stdout(&portcullis(&fixture, &["tools"]));
    let line = listing.lines().find(|line| line.starts_with("vault_copyto")).expect("listed");
    assert!(line.contains("VaultRead (/vault read) → VaultWrite (/shared write, /tmp write)"), "{line}");
    assert!(!listing.contains("vault_copyto_read") && !listing.contains("vault_copyto_write"));
    for format in ["--openai", "--mcp"] {
        let offered = stdout(&portcullis(&fixture, &["tools", format]));
        assert!(offered.contains("\"vault_copyto\"") && !offered.contains("vault_copyto_"), "{format}");
    }
    let descriptor: Vec<Value> =
        serde_json::from_str(&stdout(&portcullis(&fixture, &["tools", "--json"]))).expect("JSON");
    let tool = descriptor.iter().find(|tool| tool["name"] == "vault_copyto").expect("listed");
    assert_eq!((&tool["origin"], &tool["profile"]), (&"shipped_operation".into(), &"Nothing".into()));
    assert_eq!(tool["mounts"], Value::Array(vec![]));
    let steps = tool["steps"].as_array().expect("steps");
    let profiles: Vec<_> = steps.iter().map(|step| step["profile"].as_str().expect("a profile")).collect();
    assert_eq!(profiles, ["VaultRead", "VaultWrite"]);
    let is_operation = |tool: &Value| tool["name"] == "vault_copyto" || tool["name"] == "web_fetch";
    assert!(descriptor.iter().all(|tool| is_operation(tool) == tool.get("steps").is_some()));
}

#[test]
fn a_question_is_answered_once_for_the_whole_copy() {
    let fixture = fixture_with_lines("vault_copyto_write", "approval = \"ask\"");
    fs::write(vault_path(&fixture, "key"), "secret").expect("writable");
    let call = ["call", "vault_copyto", &arguments("/vault/key", "key").to_string()];
    let refused = portcullis(&fixture, &call);
    assert_eq!(refused.status.code(), Some(3), "{}", stderr(&refused));
    assert_eq!(fixture.rows().len(), 1);
    let listing = stdout(&portcullis(&fixture, &["tools"]));
    let line = listing.lines().find(|line| line.starts_with("vault_copyto")).expect("listed");
    assert!(line.contains(" ask "), "{line}");
    let approved = portcullis(&fixture, &[&call[..], &["--approve"]].concat());
    assert_eq!(approved.status.code(), Some(0), "{}", stderr(&approved));
    assert_content(&fixture.shared("key"), b"secret");
    assert!(
        fixture.rows()[1..]
            .iter()
            .all(|row| row.approval.as_deref() != Some("not_required") || &*row.tool == "vault_copyto_read")
    );
}
