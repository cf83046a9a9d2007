//! The files that a standalone daemon trusts, and those that it refuses.

use std::{
    fs::Permissions,
    os::unix::{fs::PermissionsExt as _, fs::symlink, net::UnixListener},
    path::Path,
};

use portcullis_shell_protocol::HealthRequest;

use super::sidecar::{code, exec, run, session, shelld, shelld_with, standalone};
use crate::world::World;

/// Starts a daemon that must refuse to run, and returns its message.
#[track_caller]
fn refusal(world: &World) -> String {
    let (mut command, _) = shelld(world);
    refusal_of(&mut command)
}

#[track_caller]
fn refusal_of(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.lines().any(|line| line.starts_with("portcullis-shelld: ")), "{said}");
    said
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_token_that_others_could_have_read_is_refused() {
    let Some(world) = World::new() else { return };
    let token = world.path("token");
    for mode in [0o640, 0o604, 0o660, 0o620] {
        let (mut command, _) = shelld(&world);
        set_mode(&token, mode);
        assert!(refusal_of(&mut command).contains("of mode 0600"));
    }
    for text in
        ["", "\n", "short", "0123456789abcdef 0123456789abcdef", "0123456789abcdef0123456789abcdef\n\n"]
    {
        let (mut command, _) = shelld(&world);
        std::fs::write(&token, text).unwrap();
        assert!(refusal_of(&mut command).contains("the token"), "{text:?}");
    }
    let (mut command, _) = shelld(&world);
    std::fs::rename(&token, world.path("real")).unwrap();
    symlink(world.path("real"), &token).unwrap();
    assert!(refusal_of(&mut command).contains("is a link"));
    std::fs::remove_file(&token).unwrap();
    assert!(refusal_of(&mut command).contains("cannot be opened"));
    std::fs::create_dir(&token).unwrap();
    assert!(refusal_of(&mut command).contains("is no file"));
}

#[test]
fn a_socket_is_not_put_where_others_could_put_something() {
    let Some(world) = World::new() else { return };
    let run = world.path("run");
    std::fs::create_dir(&run).unwrap();
    for mode in [0o750, 0o701, 0o777] {
        set_mode(&run, mode);
        assert!(refusal(&world).contains("without access for others"), "{mode:o}");
    }
    set_mode(&run, 0o700);
    std::fs::rename(&run, world.path("real")).unwrap();
    symlink(world.path("real"), &run).unwrap();
    assert!(refusal(&world).contains("is a link"));
}

#[tokio::test]
async fn foreign_file_at_the_socket_path_is_kept() {
    let Some(world) = World::new() else { return };
    let run = world.path("run");
    std::fs::create_dir(&run).unwrap();
    set_mode(&run, 0o700);
    let socket = run.join("shell.sock");
    std::fs::write(&socket, "precious").unwrap();
    assert!(refusal(&world).contains("something else in its place"));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
    std::fs::remove_file(&socket).unwrap();

    // A link to a socket that would count as a leftover if the link were followed.
    drop(UnixListener::bind(world.path("elsewhere")).unwrap());
    symlink(world.path("elsewhere"), &socket).unwrap();
    assert!(refusal(&world).contains("something else in its place"));
    assert!(world.path("elsewhere").exists() && socket.symlink_metadata().is_ok());
    std::fs::remove_file(&socket).unwrap();

    let live = UnixListener::bind(&socket).unwrap();
    assert!(refusal(&world).contains("listening there already"));
    drop(live);
    // The control: no process listens any more.
    let daemon = standalone(&world, &[]).await;
    session(&mut daemon.client().await).await;
}

#[test]
fn a_policy_that_cannot_be_is_refused_before_anybody_is_let_in() {
    let Some(world) = World::new() else { return };
    let policy = world.path("policy.toml");
    for text in ["version = 2\n", "version = 1\nunknown = true\n", "\u{0}"] {
        std::fs::write(&policy, text).unwrap();
        let (mut command, socket) = shelld(&world);
        assert!(refusal_of(command.arg("--policy").arg(&policy)).contains("policy"), "{text:?}");
        assert!(!socket.exists());
    }
    let (mut command, _) = shelld(&world);
    refusal_of(command.arg("--policy").arg(world.path("absent")));
}

#[tokio::test]
async fn the_workspaces_own_policy_takes_away() {
    let Some(world) = World::new() else { return };
    let overlay = world.path("portcullis.toml");
    std::fs::write(&overlay, "[shell]\nmounts = { shared = \"read\" }\ndeny = [\"touch\"]\n").unwrap();
    let daemon = standalone(&world, &[]).await;
    let mut shell = daemon.client().await;
    let mounts = shell.health(HealthRequest::default()).await.unwrap().into_inner().mounts;
    let mounts: Vec<_> = mounts.iter().map(|mount| (mount.name.as_str(), mount.access.as_str())).collect();
    assert_eq!(mounts, [("shared", "read"), ("tmp", "write")]);
    let session = session(&mut shell).await;
    let denied = run(&mut shell, exec(&session, "touch $PORTCULLIS_TMP/x")).await.unwrap_err();
    assert_eq!(code(&denied), "command_denied");
    drop(daemon);
    std::fs::write(&overlay, "[shell]\nenabled = false\n").unwrap();
    assert!(refusal(&world).contains("the policy has no shell"));
}

#[test]
fn a_mount_that_shows_what_is_private_is_refused() {
    let Some(world) = World::new() else { return };
    std::fs::create_dir(world.path("shared/state")).unwrap();
    let (mut command, _) = shelld_with(&world, "shared/state");
    assert!(refusal_of(&mut command).contains("lie in one another"));
    let (mut command, _) = shelld(&world);
    std::fs::remove_dir(world.path("tmp")).unwrap();
    symlink(world.path("vault"), world.path("tmp")).unwrap();
    assert!(refusal_of(&mut command).contains("a mount must be a real folder, not a link"));
}
