//! Hard links: a second name of a file, planted in a mount before the start.

use std::{
    fs::{self, hard_link},
    os::unix::fs::symlink,
    process::{Command, Output},
};

use portcullis_testing::{CallOutcome, World};
use portcullis_types::ToolErrorKind::Denied;
use serde_json::json;

use super::{IN_VAULT, OUTSIDE, Place, writing};
use crate::modules::{portcullis, stderr, stdout};

/// A world in whose `shared` a file outside every mount and a file of the vault have a second name.
async fn planted() -> Place {
    let place = Place::new().await;
    hard_link(place.world.root().join("outside.txt"), place.world.shared("outside")).expect("linked");
    hard_link(place.world.workspace().join("vault/secret.txt"), place.world.shared("innocent"))
        .expect("linked");
    place
}

#[tokio::test]
async fn no_tool_changes_a_file_in_place_that_has_other_names() {
    let place = planted().await;
    for name in ["/shared/outside", "/shared/innocent"] {
        place.refused("file_write", writing(name, "append"), Denied, "hard_link").await;
    }
    let outside = place.world.root().join("outside.txt");
    // The edit replaces the whole file, so the other name keeps its content.
    let edit = json!({"path": "/shared/outside", "old_text": "secret", "new_text": "word"});
    assert!(place.call("file_edit", edit).await.0.outcome.is_ok());
    // A private file under another name is not touched at all; the name itself can be removed.
    place.refused("file_write", writing("/shared/innocent", "overwrite"), Denied, "hard_link").await;
    assert!(place.call("file_delete", json!({"path": "/shared/innocent"})).await.0.outcome.is_ok());
    assert_eq!(fs::read_to_string(outside).expect("readable"), OUTSIDE);
    assert_eq!(
        fs::read_to_string(place.world.workspace().join("vault/secret.txt")).expect("readable"),
        IN_VAULT
    );
}

#[tokio::test]
async fn a_file_of_the_vault_is_not_read_under_another_name() {
    let place = planted().await;
    place.refused("file_read", json!({"path": "/shared/innocent"}), Denied, "hard_link").await;
    assert_eq!(place.call("file_read", json!({"path": "/vault/secret.txt"})).await.text(), IN_VAULT);
    // A legitimate hard link within the project, as a package manager makes it.
    hard_link(place.world.shared("notes.txt"), place.world.shared("d/notes.txt")).expect("linked");
    assert_eq!(place.call("file_read", json!({"path": "d/notes.txt"})).await.text(), "inside\n");
}

#[tokio::test]
async fn a_guest_neither_changes_reads_nor_makes_such_a_name() {
    let world = World::new();
    world.put("notes.txt", "inside\n");
    fs::write(world.workspace().join("vault/key"), IN_VAULT).expect("written");
    fs::write(world.root().join("outside.txt"), OUTSIDE).expect("written");
    hard_link(world.root().join("outside.txt"), world.shared("outside")).expect("linked");
    hard_link(world.workspace().join("vault/key"), world.shared("key")).expect("linked");
    let world = world.with_policy("[tools.probe_path]\nprofile = \"FileReadWrite\"\n");
    let registry = world.registry_with(&["probe_path"]).await;
    let probe = async |op: &str, path: &str, to: &str| {
        CallOutcome::of(&registry, "probe_path", json!({"op": op, "path": path, "to": to})).await
    };
    for op in ["write", "append", "truncate", "touch"] {
        for path in ["/shared/outside", "/shared/key"] {
            probe(op, path, "").await.refused(Denied, "hard_link");
        }
    }
    let read = probe("read", "/shared/key", "").await.text();
    assert!(read.starts_with("error: ") && !read.contains(IN_VAULT), "{read}");
    assert!(probe("read", "/shared/outside", "").await.text().starts_with("ok: "));
    let linked = probe("link", "/shared/notes.txt", "/tmp/notes.txt").await.text();
    assert!(linked.starts_with("error: "), "{linked}");
    assert!(!world.workspace().join("tmp/notes.txt").exists());
    assert_eq!(fs::read_to_string(world.root().join("outside.txt")).expect("readable"), OUTSIDE);
    assert_eq!(fs::read_to_string(world.workspace().join("vault/key")).expect("readable"), IN_VAULT);
}

#[tokio::test]
async fn no_command_runs_while_a_private_file_has_a_name_elsewhere() {
    let world = World::new();
    fs::write(world.workspace().join("vault/key"), IN_VAULT).expect("written");
    hard_link(world.workspace().join("vault/key"), world.shared("innocent")).expect("linked");
    let registry = world.registry_with_shell().await;
    let answer = CallOutcome::of(&registry, "shell_exec", json!({"command": "cat innocent"})).await;
    let said = answer.refused(Denied, "hard_link");
    assert!(said.contains("/vault/key"), "{said}");
    let shown = stdout(&portcullis(&world, &["doctor"]));
    assert!(shown.contains("so that no command runs:\n    /vault/key\n"), "{shown}");
}

#[tokio::test]
async fn a_search_passes_over_a_private_file_and_names_it() {
    let place = planted().await;
    place.world.put("found.txt", "a secret that is ours\n");
    let answer = place.call("file_search", json!({"query": "secret"})).await.text();
    assert!(answer.contains("/shared/found.txt:1:a secret that is ours"), "{answer}");
    assert!(answer.contains("[1 file could not be read: /shared/innocent]"), "{answer}");
    assert!(!answer.contains(IN_VAULT), "{answer}");
    // A file that the call names is refused as before.
    place.refused("file_search", json!({"query": "s", "path": "innocent"}), Denied, "hard_link").await;
}

/// A world with a file of two names in `shared`, and a folder `vault/deep`.
fn doubled() -> World {
    let world = World::new();
    fs::create_dir_all(world.workspace().join("vault/deep")).expect("made");
    world.put("a", "a");
    hard_link(world.shared("a"), world.shared("b")).expect("linked");
    world
}

/// Makes a call where `vault/deep` is a file system that this script mounts: `$0` is the folder, `$@` the
/// program, and 77 the script's exit code where it cannot mount. Returns `None` where that is not possible.
#[expect(clippy::disallowed_methods, reason = "namespaces are entered by a program of the system")]
#[expect(clippy::print_stderr, reason = "a test that skips says why")]
fn call_beside(script: &str, world: &World, words: &[&str]) -> Option<Output> {
    let ran = Command::new("unshare")
        .args(["--mount", "--propagation", "private", "sh", "-c", script])
        .arg(world.workspace().join("vault/deep"))
        .arg(portcullis_testing::binary())
        .args(world.options())
        .arg("call")
        .args(words)
        .output();
    let Ok(output) = ran else {
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
    let world = doubled();
    // A FUSE file system whose server never answers, for as long as the command runs that holds the
    // descriptor.
    let script = r#"exec 9<>/dev/fuse && options=rootmode=40000,user_id=0,group_id=0 || exit 77
        mount -i -t fuse -o fd=9,$options silent "$0" || exit 77
        exec timeout 60 "$@""#;
    let write = ["file_write", r#"{"path":"/shared/c","content":"c"}"#];
    let Some(written) = call_beside(script, &world, &write) else { return };
    assert!(written.status.success(), "{:?} {}", written.status, stderr(&written));
    // A file that cannot be checked is not taken for harmless.
    for words in [
        ["file_write", r#"{"path":"/shared/b","content":"c","mode":"overwrite"}"#],
        ["shell_exec", r#"{"command":"cat b"}"#],
    ] {
        let refused = call_beside(script, &world, &words).expect("starts");
        let said = stderr(&refused);
        assert!(refused.status.code() == Some(3) && said.contains("within 10 s"), "{words:?}: {said}");
    }
}

#[test]
fn an_unreadable_vault_is_not_taken_for_harmless() {
    let world = doubled();
    // A FUSE file system whose server is gone.
    let script = r#"exec 9<>/dev/fuse && options=rootmode=40000,user_id=0,group_id=0 || exit 77
        mount -i -t fuse -o fd=9,$options gone "$0" && exec 9>&- || exit 77
        exec "$@""#;
    for words in [
        ["--approve", "file_write", r#"{"path":"/shared/b","content":"c","mode":"overwrite"}"#],
        ["--approve", "file_read", r#"{"path":"/shared/b"}"#],
        ["--approve", "shell_exec", r#"{"command":"cat b"}"#],
    ] {
        let Some(refused) = call_beside(script, &world, &words) else { return };
        let said = stderr(&refused);
        assert_eq!(refused.status.code(), Some(3), "{words:?}: {said}");
        assert!(said.contains("could not be searched"), "{words:?}: {said}");
    }
}

#[tokio::test]
async fn target_of_a_linked_overlay_is_not_private() {
    let world = World::new();
    world.put("a", "inside");
    fs::create_dir_all(world.root().join("elsewhere")).expect("made");
    hard_link(world.shared("a"), world.root().join("elsewhere/a")).expect("linked");
    let overlay = world.workspace().join("portcullis.toml");
    fs::write(&overlay, "").expect("written");
    let registry = world.registry_with_shell().await;
    // A process that can write to the workspace replaces the overlay by a link to a folder with hard-linked
    // files.
    fs::remove_file(&overlay).expect("removed");
    symlink(world.workspace().join("shared"), &overlay).expect("linked");
    assert_eq!(CallOutcome::of(&registry, "file_read", json!({"path": "a"})).await.text(), "inside");
    let said = CallOutcome::of(&registry, "shell_exec", json!({"command": "cat a"})).await.text();
    assert!(said.starts_with("inside"), "{said}");
}

#[test]
fn doctor_names_hard_links_out_of_a_mount_and_between_two() {
    let world = World::new();
    fs::write(world.root().join("outside.txt"), OUTSIDE).expect("written");
    hard_link(world.root().join("outside.txt"), world.shared("out")).expect("linked");
    world.put("a", "a");
    hard_link(world.shared("a"), world.shared("same mount")).expect("linked");
    world.put("b", "b");
    hard_link(world.shared("b"), world.workspace().join("tmp/b")).expect("linked");
    let shown = stdout(&portcullis(&world, &["doctor"]));
    assert!(shown.contains("/shared/out has 1 name(s) outside of its mount"), "{shown}");
    assert!(shown.contains("/shared/b and /tmp/b are one file"), "{shown}");
    assert!(!shown.contains("same mount") && !shown.contains("no command runs"), "{shown}");
}
