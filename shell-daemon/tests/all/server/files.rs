//! The files that a standalone sidecar trusts, and those that it refuses.

use std::{
    fs::Permissions,
    os::unix::{
        fs::{PermissionsExt as _, symlink},
        net::{UnixListener, UnixStream},
    },
    path::Path,
};

use portcullis_shell_protocol::HealthRequest;
use portcullis_testing::wait_until;

use super::sidecar::{code, exec, run, session, shelld, shelld_with, standalone};
use crate::fixture::Fixture;

/// Starts a sidecar that must refuse to run, and returns its message.
#[track_caller]
fn refusal(fixture: &Fixture) -> String {
    let (mut command, _) = shelld(fixture);
    refusal_of(&mut command)
}

#[track_caller]
fn refusal_of(command: &mut std::process::Command) -> String {
    let output = command.output().unwrap();
    assert!(!output.status.success(), "{output:?}");
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(stderr.lines().any(|line| line.starts_with("portcullis-shelld: ")), "{stderr}");
    stderr
}

fn set_mode(path: &Path, mode: u32) {
    std::fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
}

#[test]
fn a_token_that_others_could_have_read_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let token = fixture.path("token");
    for mode in [0o640, 0o604, 0o660, 0o620] {
        let (mut command, _) = shelld(&fixture);
        set_mode(&token, mode);
        assert!(refusal_of(&mut command).contains("of mode 0600"));
    }
    for text in
        ["", "\n", "short", "0123456789abcdef 0123456789abcdef", "0123456789abcdef0123456789abcdef\n\n"]
    {
        let (mut command, _) = shelld(&fixture);
        std::fs::write(&token, text).unwrap();
        assert!(refusal_of(&mut command).contains("the token"), "{text:?}");
    }
    let (mut command, _) = shelld(&fixture);
    std::fs::rename(&token, fixture.path("real")).unwrap();
    symlink(fixture.path("real"), &token).unwrap();
    assert!(refusal_of(&mut command).contains("is a link"));
    std::fs::remove_file(&token).unwrap();
    assert!(refusal_of(&mut command).contains("cannot be opened"));
    std::fs::create_dir(&token).unwrap();
    assert!(refusal_of(&mut command).contains("is not a file"));
}

#[test]
fn a_socket_is_not_put_where_others_could_put_something() {
    let Some(fixture) = Fixture::new() else { return };
    let run = fixture.path("run");
    std::fs::create_dir(&run).unwrap();
    for mode in [0o750, 0o701, 0o777] {
        set_mode(&run, mode);
        assert!(refusal(&fixture).contains("without access for others"), "{mode:o}");
    }
    set_mode(&run, 0o700);
    std::fs::rename(&run, fixture.path("real")).unwrap();
    symlink(fixture.path("real"), &run).unwrap();
    assert!(refusal(&fixture).contains("is a link"));
}

#[tokio::test]
async fn foreign_file_at_the_socket_path_is_kept() {
    let Some(fixture) = Fixture::new() else { return };
    let run = fixture.path("run");
    std::fs::create_dir(&run).unwrap();
    set_mode(&run, 0o700);
    let socket = run.join("shell.sock");
    std::fs::write(&socket, "precious").unwrap();
    assert!(refusal(&fixture).contains("is not a socket of the daemon's user"));
    assert_eq!(std::fs::read_to_string(&socket).unwrap(), "precious");
    std::fs::remove_file(&socket).unwrap();

    // A link to a socket that would count as a leftover if the link were followed.
    drop(UnixListener::bind(fixture.path("elsewhere")).unwrap());
    symlink(fixture.path("elsewhere"), &socket).unwrap();
    assert!(refusal(&fixture).contains("is not a socket of the daemon's user"));
    assert!(fixture.path("elsewhere").exists() && socket.symlink_metadata().is_ok());
    std::fs::remove_file(&socket).unwrap();

    let live = UnixListener::bind(&socket).unwrap();
    assert!(refusal(&fixture).contains("listening there already"));
    drop(live);
    // A process that another test starts has a copy of the listener until it becomes its program.
    wait_until("the listener is closed", || UnixStream::connect(&socket).is_err());
    // The control: no process listens, so the next sidecar starts.
    let sidecar = standalone(&fixture, &[]).await;
    session(&mut sidecar.client().await).await;
}

#[test]
fn an_invalid_policy_is_refused_before_clients_connect() {
    let Some(fixture) = Fixture::new() else { return };
    let policy = fixture.path("policy.toml");
    for text in ["version = 2\n", "version = 1\nunknown = true\n", "\u{0}"] {
        std::fs::write(&policy, text).unwrap();
        let (mut command, socket) = shelld(&fixture);
        assert!(refusal_of(command.arg("--policy").arg(&policy)).contains("policy"), "{text:?}");
        assert!(!socket.exists());
    }
    let (mut command, _) = shelld(&fixture);
    refusal_of(command.arg("--policy").arg(fixture.path("absent")));
}

#[tokio::test]
async fn the_workspace_policy_only_restricts() {
    let Some(fixture) = Fixture::new() else { return };
    let overlay = fixture.path("portcullis.toml");
    std::fs::write(&overlay, "[shell]\nmounts = { shared = \"read\" }\ndeny = [\"touch\"]\n").unwrap();
    let sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let mounts = shell.health(HealthRequest::default()).await.unwrap().into_inner().mounts;
    let mounts: Vec<_> = mounts.iter().map(|mount| (mount.name.as_str(), mount.access.as_str())).collect();
    assert_eq!(mounts, [("shared", "read"), ("tmp", "write")]);
    let session = session(&mut shell).await;
    let denied = run(&mut shell, exec(&session, "touch $PORTCULLIS_TMP/x")).await.unwrap_err();
    assert_eq!(code(&denied), "command_denied");
    drop(sidecar);
    std::fs::write(&overlay, "[shell]\nenabled = false\n").unwrap();
    assert!(refusal(&fixture).contains("the policy has no shell"));
}

#[test]
fn a_mount_that_shows_what_is_private_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    std::fs::create_dir(fixture.path("shared/state")).unwrap();
    let (mut command, _) = shelld_with(&fixture, "shared/state");
    assert!(refusal_of(&mut command).contains("one contains the other"));
    let (mut command, _) = shelld(&fixture);
    std::fs::remove_dir(fixture.path("tmp")).unwrap();
    symlink(fixture.path("vault"), fixture.path("tmp")).unwrap();
    assert!(refusal_of(&mut command).contains("a mount must be a real folder, not a link"));
}
