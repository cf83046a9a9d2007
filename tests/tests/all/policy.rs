//! The policy from file to call: refusals at the start, and enforcement afterwards.

mod names;
mod overlay;
mod refusals;
mod shown;
mod trust;

use std::fs;

use portcullis_testing::{CallOutcome, World, kernel_or_skip};
use portcullis_tools::{
    OVERLAY_FILE,
    confine::{Layer, probe_kernel},
};
use portcullis_types::{
    Access,
    ToolErrorKind::{Denied, ResourceLimit},
};
use serde_json::json;

/// Writes an overlay into the world's workspace.
fn overlay(world: &World, text: &str) {
    fs::write(world.workspace().join(OVERLAY_FILE), text).expect("writable");
}

async fn read_notes(world: &World) -> CallOutcome {
    world.put("notes.txt", "inside");
    CallOutcome::of(&world.registry().await, "file_read", json!({"path": "notes.txt"})).await
}

#[tokio::test]
async fn a_tool_that_is_switched_off_is_denied_and_says_so() {
    let world = World::new().with_policy_edit("[tools.file_list]\n", "[tools.file_list]\nenabled = false\n");
    let registry = world.registry().await;
    let answer = CallOutcome::of(&registry, "file_list", json!({})).await;
    let said = answer.refused(Denied, "tool_disabled");
    assert!(said.starts_with("tool `file_list` is disabled by policy"), "{said}");
    let denial = registry.assignment(&registry.get("file_list").expect("listed")).expect_err("denied");
    assert_eq!(denial.rule, "tools.file_list.enabled");
    let row = world.rows().pop().expect("a row");
    assert_eq!(row.rule.as_deref(), Some("tools.file_list.enabled"));
    read_notes(&world).await.text().clear();
}

#[tokio::test]
async fn the_profile_in_the_policy_is_the_grant_of_the_call() {
    let narrow = "[profiles.FileReadOnly]\nmounts = { shared = \"read\", tmp = \"read\", vault = \"read\" }";
    for (now, granted, vault) in [
        ("mounts = { shared = \"read\", vault = \"read\" }", vec!["shared", "vault"], None),
        ("mounts = { shared = \"read\" }", vec!["shared"], Some("mount_not_granted")),
        ("mounts = { shared = \"write\" }", vec!["shared"], Some("mount_not_granted")),
    ] {
        let world = World::new().with_policy_edit(narrow, &format!("[profiles.FileReadOnly]\n{now}"));
        fs::write(world.workspace().join("vault/key"), "k").expect("writable");
        world.put("notes.txt", "inside");
        let registry = world.registry().await;
        let read = async |path: &str| CallOutcome::of(&registry, "file_read", json!({"path": path})).await;
        assert_eq!(read("notes.txt").await.text(), "inside");
        let row = world.rows().pop().expect("a row");
        assert_eq!(row.mounts.iter().map(|mount| &*mount.name).collect::<Vec<_>>(), granted, "{now}");
        assert_eq!(row.mounts[0].access == Access::Write, now.contains("write"), "{now}");
        let key = read("/vault/key").await.0.outcome;
        assert_eq!(key.as_ref().err().map(|error| error.code()), vault, "{now}");
        read("/tmp/x").await.refused(Denied, "mount_not_granted");
    }
}

#[tokio::test]
async fn the_policys_digest_is_on_every_row_and_follows_the_policy() {
    let mut digests = std::collections::BTreeSet::new();
    for edit in ["concurrency = 10", "concurrency = 9", "concurrency = 10 # a remark changes nothing"] {
        let world = World::new().with_policy_edit("concurrency = 10", edit);
        let registry = world.registry().await;
        for (tool, arguments) in [("file_list", json!({})), ("echo", json!({})), ("nobody", json!({}))] {
            CallOutcome::of(&registry, tool, arguments).await;
        }
        let rows = world.rows();
        assert_eq!(rows.len(), 3);
        for row in rows {
            assert_eq!(row.policy_digest.as_deref(), Some(registry.policy().digest().as_str()));
        }
        digests.insert(registry.policy().digest().as_str().to_owned());
    }
    assert_eq!(digests.len(), 2);
    // A module is part of the policy's digest.
    let world = World::new();
    let registry = world.registry_with(&["progress_then_ok"]).await;
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
        let world = World::new()
            .with_policy_edit("require = [\"landlock\", \"seccomp\"]", &format!("require = {required}"));
        assert_eq!(read_notes(&world).await.text(), "inside");
        let posture = world.rows().pop().expect("a row").posture.expect("a posture");
        for layer in Layer::THREAD {
            let says_waived = posture.split(',').any(|part| part == format!("{layer}=waived"));
            assert_eq!(says_waived, waived.contains(&layer), "{required}: {posture}");
        }
    }
}

#[tokio::test]
async fn a_tools_own_limits_hold_for_it_alone() {
    let world = World::new().with_policy_edit(
        "[tools.file_list]\n",
        "[tools.file_list]\nmax_output_bytes = \"8B\"\nmemory = \"64KiB\"\n",
    );
    world.put("a-long-enough-name.txt", "content that is longer than the other tool's limit");
    let registry = world.registry().await;
    let answer = CallOutcome::of(&registry, "file_list", json!({})).await;
    assert_eq!(answer.error().kind(), ResourceLimit, "{:?}", answer.error());
    let read = CallOutcome::of(&registry, "file_read", json!({"path": "a-long-enough-name.txt"})).await;
    assert!(!read.0.truncated && read.text().len() > 8);

    let world = World::new()
        .with_policy_edit("[tools.file_list]\n", "[tools.file_list]\nmax_output_bytes = \"8B\"\n");
    world.put("a-long-enough-name.txt", "");
    let answer = CallOutcome::of(&world.registry().await, "file_list", json!({})).await;
    assert_eq!(answer.text(), "a-long-e\n[output truncated — original size: 22 bytes]");
}
