//! Hard links: a second name of a file, planted in a mount before the start.

use std::{
    fs::{self, hard_link},
    os::unix::fs::symlink,
    process::{Command, Output},
};

use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::ToolErrorKind::Denied;
use serde_json::json;

use super::{FileSetup, IN_VAULT, OUTSIDE, writing};
use crate::modules::{portcullis, stderr, stdout};

/// Creates a fixture whose `shared` has hard links to a file outside every mount and to a file of the vault.
async fn setup_with_hard_links() -> FileSetup {
    let setup = FileSetup::new().await;
    hard_link(setup.fixture.root().join("outside.txt"), setup.fixture.shared("outside")).expect("linked");
    hard_link(setup.fixture.workspace().join("vault/secret.txt"), setup.fixture.shared("innocent"))
        .expect("linked");
    setup
}

#[tokio::test]
async fn no_tool_changes_a_file_in_place_that_has_other_names() {
    let setup = setup_with_hard_links().await;
    for name in ["/shared/outside", "/shared/innocent"] {
        setup.assert_refused("file_write", writing(name, "append"), Denied, "hard_link").await;
    }
    let outside = setup.fixture.root().join("outside.txt");
    // The edit replaces the file by rename, so the other name keeps the content.
    let edit = json!({"path": "/shared/outside", "old_text": "secret", "new_text": "word"});
    assert!(setup.call("file_edit", edit).await.0.outcome.is_output());
    // A private file is not changed through another name. The name itself can be removed.
    setup.assert_refused("file_write", writing("/shared/innocent", "overwrite"), Denied, "hard_link").await;
    assert!(setup.call("file_delete", json!({"path": "/shared/innocent"})).await.0.outcome.is_output());
    assert_eq!(fs::read_to_string(outside).expect("readable"), OUTSIDE);
    assert_eq!(
        fs::read_to_string(setup.fixture.workspace().join("vault/secret.txt")).expect("readable"),
        IN_VAULT
    );
}

#[tokio::test]
async fn a_file_of_the_vault_is_not_read_under_another_name() {
    let setup = setup_with_hard_links().await;
    setup.assert_refused("file_read", json!({"path": "/shared/innocent"}), Denied, "hard_link").await;
    assert_eq!(setup.call("file_read", json!({"path": "/vault/secret.txt"})).await.text(), IN_VAULT);
    // A legitimate hard link within the project, as package managers make it.
    hard_link(setup.fixture.shared("notes.txt"), setup.fixture.shared("d/notes.txt")).expect("linked");
    assert_eq!(setup.call("file_read", json!({"path": "d/notes.txt"})).await.text(), "inside\n");
}

#[tokio::test]
async fn a_guest_neither_changes_reads_nor_makes_such_a_name() {
    let fixture = Fixture::new();
    fixture.put("notes.txt", "inside\n");
    fs::write(fixture.workspace().join("vault/key"), IN_VAULT).expect("written");
    fs::write(fixture.root().join("outside.txt"), OUTSIDE).expect("written");
    hard_link(fixture.root().join("outside.txt"), fixture.shared("outside")).expect("linked");
    hard_link(fixture.workspace().join("vault/key"), fixture.shared("key")).expect("linked");
    let fixture = fixture.with_policy("[tools.probe_path]\nprofile = \"FileReadWrite\"\n");
    let registry = fixture.registry_with(&["probe_path"]).await;
    let probe = async |op: &str, path: &str, to: &str| {
        CallOutcome::run(&registry, "probe_path", json!({"op": op, "path": path, "to": to})).await
    };
    for op in ["write", "append", "truncate", "touch"] {
        for path in ["/shared/outside", "/shared/key"] {
            probe(op, path, "").await.assert_refused(Denied, "hard_link");
        }
    }
    let read = probe("read", "/shared/key", "").await.text();
    assert!(read.starts_with("error: ") && !read.contains(IN_VAULT), "{read}");
    assert!(probe("read", "/shared/outside", "").await.text().starts_with("ok: "));
    let linked = probe("link", "/shared/notes.txt", "/tmp/notes.txt").await.text();
    assert!(linked.starts_with("error: "), "{linked}");
    assert!(!fixture.workspace().join("tmp/notes.txt").exists());
    assert_eq!(fs::read_to_string(fixture.root().join("outside.txt")).expect("readable"), OUTSIDE);
    assert_eq!(fs::read_to_string(fixture.workspace().join("vault/key")).expect("readable"), IN_VAULT);
}

#[tokio::test]
async fn no_command_runs_while_a_private_file_has_another_hard_link() {
    let fixture = Fixture::new();
    fs::write(fixture.workspace().join("vault/key"), IN_VAULT).expect("written");
    hard_link(fixture.workspace().join("vault/key"), fixture.shared("innocent")).expect("linked");
    let registry = fixture.registry_with_shell().await;
    let answer = CallOutcome::run(&registry, "shell_exec", json!({"command": "cat innocent"})).await;
    let message = answer.assert_refused(Denied, "hard_link");
    assert!(message.contains("/vault/key"), "{message}");
    let stdout_text = stdout(&portcullis(&fixture, &["doctor"]));
    assert!(stdout_text.contains("no command runs until it is removed:\n    /vault/key\n"), "{stdout_text}");
}

#[tokio::test]
async fn a_search_passes_over_a_private_file_and_names_it() {
    let setup = setup_with_hard_links().await;
    setup.fixture.put("found.txt", "a secret that is ours\n");
    let answer = setup.call("file_search", json!({"query": "secret"})).await.text();
    assert!(answer.contains("/shared/found.txt:1:a secret that is ours"), "{answer}");
    assert!(answer.contains("[1 file could not be read: /shared/innocent]"), "{answer}");
    assert!(!answer.contains(IN_VAULT), "{answer}");
    // A file that the call names is still refused.
    setup.assert_refused("file_search", json!({"query": "s", "path": "innocent"}), Denied, "hard_link").await;
}

/// Creates a fixture with a file that has two names in `shared`, and a folder `vault/deep`.
fn fixture_with_double_name() -> Fixture {
    let fixture = Fixture::new();
    fs::create_dir_all(fixture.workspace().join("vault/deep")).expect("the folder can be made");
    fixture.put("a", "a");
    hard_link(fixture.shared("a"), fixture.shared("b")).expect("linked");
    fixture
}

/// Makes a call while `vault/deep` is a file system that this script mounts. In the script, `$0` is the folder, `$@`
/// the program, and 77 the exit code if it cannot mount. Returns `None` if mounting is not possible.
#[expect(clippy::disallowed_methods, reason = "namespaces are entered by a program of the system")]
#[expect(clippy::print_stderr, reason = "a test that skips says why")]
fn call_with_mounted_vault(script: &str, fixture: &Fixture, words: &[&str]) -> Option<Output> {
    let result = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(fixture.workspace().join("vault/deep"))
        .arg(portcullis_testing::binary())
        .args(fixture.options())
        .arg("call")
        .args(words)
        .output();
    let Ok(output) = result else {
        eprintln!("skipped: there is no unshare");
        return None;
    };
    if output.status.code() == Some(77) || stderr(&output).starts_with("unshare:") {
        eprintln!("skipped: no file system of our own can be mounted: {}", stderr(&output));
        return None;
    }
    Some(output)
}

#[test]
fn a_vault_that_does_not_answer_holds_up_no_call() {
    let fixture = fixture_with_double_name();
    // A FUSE file system whose server never answers, while the command that holds the descriptor runs.
    let script = r#"exec 9<>/dev/fuse && options=rootmode=40000,user_id=0,group_id=0 || exit 77
        mount -i -t fuse -o fd=9,$options silent "$0" || exit 77
        exec timeout 60 "$@""#;
    let write = ["file_write", r#"{"path":"/shared/c","content":"c"}"#];
    let Some(written) = call_with_mounted_vault(script, &fixture, &write) else { return };
    assert!(written.status.success(), "{:?} {}", written.status, stderr(&written));
    // A file that cannot be checked does not count as harmless.
    for words in [
        ["file_write", r#"{"path":"/shared/b","content":"c","mode":"overwrite"}"#],
        ["shell_exec", r#"{"command":"cat b"}"#],
    ] {
        let refused = call_with_mounted_vault(script, &fixture, &words).expect("starts");
        let stderr_text = stderr(&refused);
        assert!(
            refused.status.code() == Some(3) && stderr_text.contains("within 10 s"),
            "{words:?}: {stderr_text}"
        );
    }
}

#[test]
fn an_unreadable_vault_counts_as_unsafe() {
    let fixture = fixture_with_double_name();
    // A FUSE file system whose server has ended.
    let script = r#"exec 9<>/dev/fuse && options=rootmode=40000,user_id=0,group_id=0 || exit 77
        mount -i -t fuse -o fd=9,$options gone "$0" && exec 9>&- || exit 77
        exec "$@""#;
    for words in [
        ["--approve", "file_write", r#"{"path":"/shared/b","content":"c","mode":"overwrite"}"#],
        ["--approve", "file_read", r#"{"path":"/shared/b"}"#],
        ["--approve", "shell_exec", r#"{"command":"cat b"}"#],
    ] {
        let Some(refused) = call_with_mounted_vault(script, &fixture, &words) else { return };
        let stderr_text = stderr(&refused);
        assert_eq!(refused.status.code(), Some(3), "{words:?}: {stderr_text}");
        assert!(stderr_text.contains("could not be searched"), "{words:?}: {stderr_text}");
    }
}

#[tokio::test]
async fn target_of_a_linked_overlay_is_not_private() {
    let fixture = Fixture::new();
    fixture.put("a", "inside");
    fs::create_dir_all(fixture.root().join("elsewhere")).expect("the folder can be made");
    hard_link(fixture.shared("a"), fixture.root().join("elsewhere/a")).expect("linked");
    let overlay = fixture.workspace().join("portcullis.toml");
    fs::write(&overlay, "").expect("written");
    let registry = fixture.registry_with_shell().await;
    // A process that can write to the workspace replaces the overlay with a link to a folder with hard-linked
    // files.
    fs::remove_file(&overlay).expect("removed");
    symlink(fixture.workspace().join("shared"), &overlay).expect("linked");
    assert_eq!(CallOutcome::run(&registry, "file_read", json!({"path": "a"})).await.text(), "inside");
    let answer_text = CallOutcome::run(&registry, "shell_exec", json!({"command": "cat a"})).await.text();
    assert!(answer_text.starts_with("inside"), "{answer_text}");
}

#[test]
fn doctor_names_hard_links_out_of_a_mount_and_between_two() {
    let fixture = Fixture::new();
    fs::write(fixture.root().join("outside.txt"), OUTSIDE).expect("written");
    hard_link(fixture.root().join("outside.txt"), fixture.shared("out")).expect("linked");
    fixture.put("a", "a");
    hard_link(fixture.shared("a"), fixture.shared("same mount")).expect("linked");
    fixture.put("b", "b");
    hard_link(fixture.shared("b"), fixture.workspace().join("tmp/b")).expect("linked");
    let stdout_text = stdout(&portcullis(&fixture, &["doctor"]));
    assert!(stdout_text.contains("/shared/out has 1 name(s) outside of its mount"), "{stdout_text}");
    assert!(stdout_text.contains("/shared/b and /tmp/b are one file"), "{stdout_text}");
    assert!(!stdout_text.contains("same mount") && !stdout_text.contains("no command runs"), "{stdout_text}");
}
