//! `portcullis mounts`: the map of grants, its numbers from the audit log, and the data flows. Calls show
//! that the map is correct.

use portcullis_testing::{CallOutcome, Fixture, approving_caller};
use portcullis_tools::new_call;
use serde_json::{Value, json};

use crate::modules::{portcullis, stderr, stdout};

#[track_caller]
fn mounts(fixture: &Fixture, words: &[&str]) -> Vec<Value> {
    let output = portcullis(fixture, &[&["mounts", "--json"], words].concat());
    assert!(output.status.success(), "{words:?}: {}", stderr(&output));
    serde_json::from_str(&stdout(&output)).expect("a list")
}

/// Returns the access to a mount that the map shows for a tool.
fn access<'a>(map: &'a [Value], tool: &str, mount: &str) -> Option<&'a str> {
    let entry = map.iter().find(|entry| entry["tool"] == tool).expect("an entry");
    let granted = entry["mounts"].as_array().expect("a list");
    granted.iter().find(|grant| grant["mount"] == mount)?["access"].as_str()
}

#[tokio::test]
async fn the_map_agrees_with_calls() {
    let fixture =
        Fixture::new().with_policy("[tools.file_edit]\nprofile = \"FileReadOnly\"\n").with_policy_edit(
            "FileReadWrite]\nmounts = { shared = \"write\"",
            "FileReadWrite]\nmounts = { shared = \"read\"",
        );
    let map = mounts(&fixture, &[]);
    assert!(!fixture.state().join("audit.jsonl").exists(), "nothing is made");
    let registry = fixture.registry().await;
    for mount in ["shared", "tmp", "vault"] {
        std::fs::write(fixture.workspace().join(mount).join("file"), "one").expect("written");
        let path = format!("/{mount}/file");
        for (tool, arguments, needed) in [
            ("file_read", json!({"path": path}), "read"),
            ("file_list", json!({"path": format!("/{mount}")}), "read"),
            ("file_edit", json!({"path": path, "old": "one", "new": "one!"}), "write"),
            ("file_write", json!({"path": path, "content": "one"}), "write"),
        ] {
            let call = new_call(tool, arguments.to_string());
            let outcome = CallOutcome(registry.execute_with_policy(call, &approving_caller()).await);
            let is_granted = match access(&map, tool, mount) {
                Some("write") => true,
                Some(_) => needed == "read",
                None => false,
            };
            assert_eq!(outcome.0.outcome.is_output(), is_granted, "{tool} {path}: {:?}", outcome.0.outcome);
        }
    }
}

#[test]
fn the_map_has_the_rule_and_the_numbers_of_the_log() {
    let fixture = Fixture::new();
    fixture.put("a.txt", "a");
    for (path, code) in [("a.txt", 0), ("a.txt", 0), ("/vault/none", 1)] {
        let words = ["call", "file_read", &json!({"path": path}).to_string()];
        assert_eq!(portcullis(&fixture, &words).status.code(), Some(code));
    }
    let words = ["call", "file_write", r#"{"path":"/vault/x","content":""}"#];
    assert_eq!(portcullis(&fixture, &words).status.code(), Some(3));
    let map = mounts(&fixture, &[]);
    let entry = |tool: &str| map.iter().find(|entry| entry["tool"] == tool).expect("an entry");
    assert_eq!(entry("file_read")["calls"]["shared"], json!({"used": 2, "tried": 0}));
    assert_eq!(entry("file_read")["calls"]["vault"], json!({"used": 1, "tried": 0}));
    assert_eq!(entry("file_write")["calls"]["vault"], json!({"used": 0, "tried": 1}));
    let grant = &entry("file_read")["mounts"][0];
    assert_eq!(grant["rule"], "profiles.FileReadOnly.mounts.shared");
    assert!(grant["place"]["line"].is_number(), "{grant}");
    let by_mount = stdout(&portcullis(&fixture, &["mounts", "--by", "mount"]));
    assert!(by_mount.contains("read, 2 used"), "{by_mount}");
    let by_profile = stdout(&portcullis(&fixture, &["mounts", "--by", "profile"]));
    assert!(by_profile.contains("WorkspaceRead"), "a profile without a tool is listed: {by_profile}");
    let by_tool = stdout(&portcullis(&fixture, &["mounts"]));
    assert!(by_tool.contains("–, 1 tried"), "{by_tool}");
}

/// Returns the verdicts on a tool's calls with data of this source, as `verdict rule → places`.
fn ways(steps: &[Value], from: &str, tool: &str) -> Vec<String> {
    let of = steps.iter().filter(|step| step["from"] == from && step["tool"] == tool);
    let text = |step: &Value| {
        let to: Vec<&str> = step["to"].as_array().expect("a list").iter().filter_map(Value::as_str).collect();
        format!("{} → {}", step["verdict"].as_str().expect("a word"), to.join(" "))
    };
    of.map(text).collect()
}

#[test]
fn reach_follows_data_over_chains_of_calls() {
    let fixture = Fixture::new();
    let steps = mounts(&fixture, &["--reach", "vault"]);
    assert_eq!(ways(&steps, "/vault", "file_read"), ["allow → the model"]);
    assert_eq!(ways(&steps, "/vault", "vault_copyto"), ["allow → /shared /tmp"]);
    assert_eq!(ways(&steps, "the model, after /vault", "web_fetch"), ["deny → "]);
    assert_eq!(ways(&steps, "the model, after /vault", "file_write"), ["allow → /shared /tmp"]);
    assert_eq!(ways(&steps, "the model, after /vault", "shell_exec"), ["ask → /shared /tmp"]);
    // A copy in another mount has no label, so another run can send it away with an approval.
    assert_eq!(ways(&steps, "the model, after /shared", "web_fetch"), ["ask → https://*"]);
    let steps = mounts(&fixture, &["--reach", "web"]);
    assert_eq!(ways(&steps, "the web", "web_fetch"), ["ask → the model"]);
    // A rule about protected kinds does not stop writes of other files.
    assert_eq!(ways(&steps, "the model, after the web", "file_write"), ["allow → /shared /tmp"]);
    let text = stdout(&portcullis(&fixture, &["mounts", "--reach", "vault"]));
    assert!(text.contains("  web_fetch (refused by flow[vault -> network]) → ends\n"), "{text}");
}

#[test]
fn reach_knows_secrets_and_variables() {
    let fixture = Fixture::new().with_policy(
        "[secrets.api]\nfrom = \"env:API_KEY\"\nhosts = [\"https://api.example\"]\nheader = \"X-Key\"\ntools = [\"web_fetch\"]\n",
    );
    let fixture = fixture.with_policy_edit("environment = []", "environment = [\"TOKEN\"]");
    let steps = mounts(&fixture, &["--reach", "secret:api"]);
    assert_eq!(ways(&steps, "secret api", "web_fetch"), ["ask → https://api.example"]);
    let steps = mounts(&fixture, &["--reach", "env:TOKEN"]);
    assert_eq!(ways(&steps, "variable TOKEN", "shell_exec"), ["ask → the model /shared /tmp"]);
    assert_eq!(ways(&steps, "the model, after variable TOKEN", "web_fetch"), ["ask → https://*"]);
    for (source, expected) in [
        ("secret:none", "the policy has no secret `none`"),
        ("env:HOME", "the policy has no variable `HOME`"),
        ("nowhere", "the policy has no mount `nowhere`"),
        ("file:x", "it is not a source"),
    ] {
        let output = portcullis(&fixture, &["mounts", "--reach", source]);
        assert_eq!(output.status.code(), Some(2), "{source}");
        assert!(stderr(&output).contains(expected), "{source}: {}", stderr(&output));
    }
}
