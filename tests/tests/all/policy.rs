//! The policy, from its file to the calls: refusals at the start, and enforcement afterwards.

mod check_output;
mod compared;
mod expected;
mod explained;
mod mistakes;
mod mounts;
mod names;
mod one_answer;
mod overlay;
mod recorded;
mod refusals;
mod reviewed;
mod tightened;
mod trust;

use std::fs;

use portcullis_testing::{CallOutcome, Fixture, kernel_or_skip};
use portcullis_tools::{
    Caller, OVERLAY_FILE,
    confine::{Layer, probe_kernel},
    new_call,
};
use portcullis_types::{
    Access,
    ToolErrorKind::{Denied, ResourceLimit},
};
use serde_json::json;

/// Writes an overlay into the fixture's workspace.
fn write_overlay(fixture: &Fixture, text: &str) {
    fs::write(fixture.workspace().join(OVERLAY_FILE), text).expect("writable");
}

async fn read_notes(fixture: &Fixture) -> CallOutcome {
    fixture.put("notes.txt", "inside");
    CallOutcome::run(&fixture.registry().await, "file_read", json!({"path": "notes.txt"})).await
}

#[tokio::test]
async fn a_tool_that_is_switched_off_is_denied_and_says_so() {
    let fixture =
        Fixture::new().with_policy_edit("[tools.file_list]\n", "[tools.file_list]\nenabled = false\n");
    let registry = fixture.registry().await;
    let answer = CallOutcome::run(&registry, "file_list", json!({})).await;
    let message = answer.assert_refused(Denied, "tool_disabled");
    assert!(message.starts_with("tool `file_list` is disabled by policy"), "{message}");
    let denial = registry.assignment(&registry.get("file_list").expect("listed")).expect_err("denied");
    assert_eq!(denial.rule, "tools.file_list.enabled");
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.rule.as_deref(), Some("tools.file_list.enabled"));
    read_notes(&fixture).await.text().clear();
}

#[tokio::test]
async fn the_profile_in_the_policy_is_the_grant_of_the_call() {
    let shipped_profile =
        "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }";
    for (edited_mounts, granted, vault) in [
        ("mounts = { shared = \"read\", vault = \"read\" }", vec!["shared", "vault"], None),
        ("mounts = { shared = \"read\" }", vec!["shared"], Some("mount_not_granted")),
        ("mounts = { shared = \"write\" }", vec!["shared"], Some("mount_not_granted")),
    ] {
        let fixture = Fixture::new()
            .with_policy_edit(shipped_profile, &format!("[profiles.FileReadOnly]\n{edited_mounts}"));
        fs::write(fixture.workspace().join("vault/key"), "k").expect("writable");
        fixture.put("notes.txt", "inside");
        let registry = fixture.registry().await;
        let read = async |path: &str| CallOutcome::run(&registry, "file_read", json!({"path": path})).await;
        assert_eq!(read("notes.txt").await.text(), "inside");
        let row = fixture.rows().pop().expect("a row");
        assert_eq!(
            row.mounts.iter().map(|mount| &*mount.name).collect::<Vec<_>>(),
            granted,
            "{edited_mounts}"
        );
        assert_eq!(row.mounts[0].access == Access::Write, edited_mounts.contains("write"), "{edited_mounts}");
        let key = read("/vault/key").await.0.outcome;
        assert_eq!(key.error().map(|error| error.code()), vault, "{edited_mounts}");
        read("/tmp/x").await.assert_refused(Denied, "mount_not_granted");
    }
}

#[tokio::test]
async fn the_policys_digest_is_on_every_row_and_follows_the_policy() {
    let mut digests = std::collections::BTreeSet::new();
    for edit in ["concurrency = 10", "concurrency = 9", "concurrency = 10 # a remark changes nothing"] {
        let fixture = Fixture::new().with_policy_edit("concurrency = 10", edit);
        let registry = fixture.registry().await;
        for (tool, arguments) in [("file_list", json!({})), ("echo", json!({})), ("nobody", json!({}))] {
            CallOutcome::run(&registry, tool, arguments).await;
        }
        let rows = fixture.rows();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row.policy_digest.as_deref(), Some(registry.policy().digest().as_str()));
        }
        digests.insert(registry.policy().digest().as_str().to_owned());
    }
    assert_eq!(digests.len(), 2);
    // A module is part of the policy's digest.
    let fixture = Fixture::new();
    let registry = fixture.registry_with(&["progress_then_ok"]).await;
    assert!(digests.insert(registry.policy().digest().as_str().to_owned()));
}

#[tokio::test]
async fn a_layer_that_is_not_required_is_reported_as_waived() {
    let kernel = probe_kernel();
    for (required, waived) in [
        ("[\"seccomp\"]", vec![Layer::Landlock]),
        ("[\"landlock\"]", vec![Layer::Seccomp]),
        ("[]", vec![Layer::Landlock, Layer::Seccomp]),
        ("[\"landlock\", \"seccomp\"]", vec![]),
    ] {
        let is_there = Layer::THREAD.iter().all(|layer| kernel.missing(*layer).is_none());
        if !kernel_or_skip("Landlock or seccomp", is_there) {
            println!("skipped: this kernel lacks Landlock or seccomp");
            return;
        }
        let fixture = Fixture::new()
            .with_policy_edit("require = [\"landlock\", \"seccomp\"]", &format!("require = {required}"));
        assert_eq!(read_notes(&fixture).await.text(), "inside");
        let posture = fixture.rows().pop().expect("a row").posture.expect("a posture");
        for layer in Layer::THREAD {
            let says_waived = posture.split(',').any(|part| part == format!("{layer}=waived"));
            assert_eq!(says_waived, waived.contains(&layer), "{required}: {posture}");
        }
    }
}

#[tokio::test]
async fn a_tools_own_limits_hold_for_it_alone() {
    let fixture = Fixture::new().with_policy_edit(
        "[tools.file_list]\n",
        "[tools.file_list]\nmax_output_bytes = \"8B\"\nmemory = \"64KiB\"\n",
    );
    fixture.put("a-long-enough-name.txt", "content that is longer than the other tool's limit");
    let registry = fixture.registry().await;
    let answer = CallOutcome::run(&registry, "file_list", json!({})).await;
    assert_eq!(answer.error().kind(), ResourceLimit, "{:?}", answer.error());
    let read = CallOutcome::run(&registry, "file_read", json!({"path": "a-long-enough-name.txt"})).await;
    assert!(!read.0.truncated && read.text().len() > 8);

    let fixture = Fixture::new()
        .with_policy_edit("[tools.file_list]\n", "[tools.file_list]\nmax_output_bytes = \"8B\"\n");
    fixture.put("a-long-enough-name.txt", "");
    let answer = CallOutcome::run(&fixture.registry().await, "file_list", json!({})).await;
    assert_eq!(answer.text(), "a-long-e\n[output truncated — original size: 22 bytes]");
}

#[tokio::test]
async fn listed_paths_are_written_unasked_and_links_are_asked_about() {
    let entry = "[tools.file_write]\napproval = \"ask\"\nunasked = { path = \"src/**\" }\n";
    let fixture = Fixture::new().with_policy(entry);
    fs::create_dir_all(fixture.shared("src/folder")).expect("the folder can be made");
    fixture.put("Makefile", "all:\n");
    std::os::unix::fs::symlink("../Makefile", fixture.shared("src/link")).expect("linked");
    std::os::unix::fs::symlink("..", fixture.shared("src/up")).expect("linked");
    let registry = fixture.registry().await;
    let write = async |path: &str| {
        let call = new_call("file_write", json!({"path": path, "content": "x"}).to_string());
        CallOutcome(registry.execute_with_policy(call, &Caller::new("agent", "run")).await)
    };
    for path in ["src/a", "src/folder/b", "/shared/src/new/c"] {
        write(path).await.text().clear();
    }
    let row = fixture.rows().pop().expect("a row");
    assert_eq!(row.rule.as_deref(), Some("tools.file_write.unasked.path[\"src/**\"]"));
    for path in ["Makefile", "src/link", "src/up/Makefile", "src/../Makefile", "/tmp/src/a"] {
        write(path).await.assert_refused(Denied, "approval_unavailable");
    }
    assert_eq!(fs::read_to_string(fixture.shared("Makefile")).expect("the file is readable"), "all:\n");
}
