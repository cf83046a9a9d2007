//! Permission to run commands: approval, the policy's shell, and rules about commands.

use portcullis_testing::World;
use portcullis_tools::Caller;
use portcullis_types::ToolErrorKind;
use serde_json::json;

use super::Shell;

#[tokio::test]
async fn a_command_that_nobody_approved_of_does_not_run() {
    let shell = Shell::new().await;
    let caller = Caller::new("tester", "run");
    let answer = shell.call_as(&caller, json!({"command": "echo > made"})).await;
    answer.refused(ToolErrorKind::Denied, "approval_unavailable");
    assert!(!shell.world.shared("made").exists());
}

#[tokio::test]
async fn a_denied_program_does_not_run_however_it_is_spelled() {
    let world = World::new().with_policy_edit("deny        = []", "deny        = [\"touch\"]");
    let shell = Shell::of(world).await;
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
        let message = shell.run(command).await.refused(ToolErrorKind::Denied, "command_denied");
        assert!(message.contains('('), "a hint: {message}");
        assert!(!shell.world.shared("made").exists(), "{command}");
    }
    assert_eq!(shell.text("echo allowed").await, "allowed\n");
}

#[tokio::test]
async fn an_unparsable_command_is_denied_only_where_a_rule_exists() {
    let unreadable = "x=echo; $x hi";
    assert_eq!(Shell::new().await.text(unreadable).await, "hi\n");
    let world = World::new().with_policy_edit("deny        = []", "deny        = [\"sudo\"]");
    Shell::of(world).await.run(unreadable).await.refused(ToolErrorKind::Denied, "command_denied");
}

#[tokio::test]
async fn a_policy_without_a_shell_runs_no_command() {
    let world = World::new().with_policy_edit("enabled     = true", "enabled     = false");
    let shell = Shell::of(world).await;
    let message = shell.run("true").await.refused(ToolErrorKind::Denied, "shell_disabled");
    assert!(message.contains("enabled = true"), "{message}");
}

#[tokio::test]
async fn a_workspace_may_take_the_shell_away() {
    let world = World::new();
    std::fs::write(world.workspace().join("portcullis.toml"), "version = 1\n[shell]\nenabled = false\n")
        .expect("writable");
    let shell = Shell::of(world).await;
    shell.run("true").await.refused(ToolErrorKind::Denied, "shell_disabled");
}

#[tokio::test]
async fn a_mount_that_the_shell_has_for_reading_is_not_written() {
    let world = World::new().with_policy_edit(
        "mounts      = { shared = \"write\", tmp = \"write\" }",
        "mounts      = { shared = \"read\", tmp = \"write\" }",
    );
    let shell = Shell::of(world).await;
    shell.world.put("note", "seen");
    assert_eq!(shell.text("cat note; echo x 2>/dev/null > made || echo refused").await, "seenrefused\n");
    assert!(!shell.world.shared("made").exists());
}
