//! Restrictions: the effect of a workspace's overlay and of a sandbox tier's section on calls.

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_tools::{OVERLAY_FILE, bootstrap_runtime_tools};
use portcullis_types::{SandboxTier, ToolErrorKind::Denied};
use serde_json::json;

use super::write_overlay;
use crate::support::{caller, raw_call};

const RESTRICTIONS: &str = "
[profiles.FileReadWrite]
mounts = { tmp = \"read\" }
[profiles.FileReadOnly]
mounts = { vault = \"none\" }
[tools.file_list]
enabled = false
[tools.echo]
approval = \"ask\"
[protect]
paths = [\"Makefile\"]
[limits]
max_output_bytes = \"64B\"
";

/// Asserts the restrictions of `RESTRICTIONS` in a fixture, in whichever file they are.
async fn check_restrictions(fixture: &Fixture, tier: SandboxTier) {
    fixture.put("notes.txt", "x".repeat(100));
    std::fs::write(fixture.workspace().join("vault/key"), "k").expect("writable");
    let mut envelope = fixture.envelope();
    envelope.sandbox_tier = tier;
    let registry = bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
    let call = async |tool: &str, arguments| CallOutcome::run(&registry, tool, arguments).await;
    let write = |path: &str| json!({"path": path, "content": "c"});

    call("file_write", write("/tmp/x")).await.assert_refused(Denied, "mount_read_only");
    call("file_write", write("/shared/sub/makefile")).await.assert_refused(Denied, "protected_path");
    call("file_write", write("/shared/.bashrc")).await.assert_refused(Denied, "protected_path");
    call("file_read", json!({"path": "/vault/key"})).await.assert_refused(Denied, "mount_not_granted");
    call("file_list", json!({})).await.assert_refused(Denied, "tool_disabled");
    let echo = registry.execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller()).await;
    assert_eq!(echo.into_result().expect_err("nobody to ask").code(), "approval_unavailable");
    let read = call("file_read", json!({"path": "notes.txt"})).await;
    assert_eq!(read.text(), format!("{}\n[output truncated — original size: 100 bytes]", "x".repeat(64)));
    call("file_write", write("/shared/fine")).await.0.into_result().expect("what was not taken away holds");
    assert!(!fixture.workspace().join("tmp/x").exists());
}

#[tokio::test]
async fn an_overlay_in_the_workspace_takes_away_and_the_calls_show_it() {
    let fixture = Fixture::new();
    write_overlay(&fixture, &format!("version = 1\n{RESTRICTIONS}"));
    check_restrictions(&fixture, SandboxTier::Process).await;
}

#[tokio::test]
async fn a_sandbox_tiers_section_restricts_runners_of_that_tier() {
    let section = RESTRICTIONS.replace("\n[", "\n[sandbox.container.");
    let fixture = Fixture::new().with_policy(&section);
    check_restrictions(&fixture, SandboxTier::Container).await;

    let fixture = Fixture::new().with_policy(&section);
    for tier in [SandboxTier::Process, SandboxTier::MicroVm] {
        let mut envelope = fixture.envelope();
        envelope.sandbox_tier = tier;
        let registry = bootstrap_runtime_tools(&envelope).await.expect("bootstraps");
        let listed = CallOutcome::run(&registry, "file_list", json!({})).await;
        assert!(listed.0.outcome.is_output(), "{tier}: {:?}", listed.0.outcome);
    }
}

#[tokio::test]
async fn no_tool_reaches_the_overlay_itself() {
    let fixture = Fixture::new();
    write_overlay(&fixture, "version = 1\n[tools.file_list]\nenabled = false\n");
    let registry = fixture.registry().await;
    for path in [format!("/{OVERLAY_FILE}"), format!("/shared/../{OVERLAY_FILE}"), OVERLAY_FILE.to_owned()] {
        let arguments = json!({"path": path, "content": "version = 1"});
        CallOutcome::run(&registry, "file_write", arguments).await;
    }
    let text = std::fs::read_to_string(fixture.workspace().join(OVERLAY_FILE)).expect("the file is readable");
    assert!(text.contains("enabled = false"));
    let later_call = CallOutcome::run(&fixture.registry().await, "file_list", json!({})).await;
    later_call.assert_refused(Denied, "tool_disabled");
}
