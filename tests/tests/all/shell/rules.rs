//! Permission to run commands: approval, the policy's shell, and rules about commands.

use portcullis_testing::Fixture;
use portcullis_tools::Caller;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::Shell;

#[tokio::test]
async fn an_unapproved_command_does_not_run() {
    let shell = Shell::new().await;
    let caller = Caller::new("tester", "run");
    let answer = shell.call_as(&caller, json!({"command": "echo > made"})).await;
    answer.assert_refused(ToolErrorKind::Denied, "approval_unavailable");
    assert!(!shell.fixture.shared("made").exists());
}

#[tokio::test]
async fn a_denied_program_does_not_run_however_it_is_spelled() {
    let fixture = Fixture::new().with_policy_key("shell.deny", "[\"touch\"]");
    let shell = Shell::with_fixture(fixture).await;
    for command in [
        "touch made",
        "/usr/bin/touch made",
        "env touch made",
        "echo made | xargs touch",
        "sh -c 'touch made'",
        "echo $(touch made)",
        "true && 'to'uch made",
        "t=touch; $t made",
    ] {
        let message = shell.run(command).await.assert_refused(ToolErrorKind::Denied, "command_denied");
        assert!(message.contains('('), "a hint: {message}");
        assert!(!shell.fixture.shared("made").exists(), "{command}");
    }
    assert_eq!(shell.text("echo allowed").await, "allowed\n");
}

#[tokio::test]
async fn an_unparsable_command_is_denied_only_where_a_rule_exists() {
    let unreadable = "x=echo; $x hi";
    assert_eq!(Shell::new().await.text(unreadable).await, "hi\n");
    let fixture = Fixture::new().with_policy_key("shell.deny", "[\"sudo\"]");
    Shell::with_fixture(fixture)
        .await
        .run(unreadable)
        .await
        .assert_refused(ToolErrorKind::Denied, "command_denied");
}

#[tokio::test]
async fn a_policy_without_a_shell_runs_no_command() {
    let fixture = Fixture::new().with_policy_key("shell.enabled", "false");
    let shell = Shell::with_fixture(fixture).await;
    let message = shell.run("true").await.assert_refused(ToolErrorKind::Denied, "shell_disabled");
    assert!(message.contains("enabled = true"), "{message}");
}

#[tokio::test]
async fn a_workspace_may_take_the_shell_away() {
    let fixture = Fixture::new();
    std::fs::write(fixture.workspace().join("portcullis.toml"), "version = 1\n[shell]\nenabled = false\n")
        .expect("writable");
    let shell = Shell::with_fixture(fixture).await;
    shell.run("true").await.assert_refused(ToolErrorKind::Denied, "shell_disabled");
}

#[tokio::test]
async fn a_mount_that_the_shell_has_for_reading_is_not_written() {
    let fixture = Fixture::new().with_policy_edit(
        "mounts      = { shared = \"write\", tmp = \"write\" }",
        "mounts      = { shared = \"read\", tmp = \"write\" }",
    );
    let shell = Shell::with_fixture(fixture).await;
    shell.fixture.put("note", "seen");
    assert_eq!(shell.text("cat note; echo x 2>/dev/null > made || echo refused").await, "seenrefused\n");
    assert!(!shell.fixture.shared("made").exists());
}
