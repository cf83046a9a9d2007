//! The clients that are admitted, and the client that owns a session.

use std::{
    fs::Permissions,
    io::Read as _,
    os::unix::{fs::PermissionsExt as _, net::UnixStream},
    time::Duration,
};

use portcullis_shell_protocol::{
    CancelRequest, HealthRequest, KillSessionRequest, ListSessionsRequest, WriteStdinRequest, exited::Ending,
};
use portcullis_testing::kernel_environment::KernelEnvironment;
use rustix::process::Uid;
use tonic::Code;

use super::sidecar::{
    Credentials, begin, client, client_if_open, code, config, embedded, everything, exec, finish, output,
    run, session, standalone, standalone_in,
};
use crate::fixture::Fixture;

#[tokio::test]
async fn connection_without_the_token_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    for token in [
        None,
        Some(String::new()),
        Some("fedcba9876543210fedcba9876543210".to_owned()),
        Some("0123456789abcdef0123456789abcde".to_owned()),
        Some("0123456789abcdef0123456789abcdef0".to_owned()),
    ] {
        let mut shell = sidecar.client_as(Credentials { token, ..Credentials::good() }).await;
        let refused = shell.create_session(everything()).await.unwrap_err();
        assert_eq!((refused.code(), code(&refused)), (Code::Unauthenticated, "unauthenticated"));
        let refused = shell.health(HealthRequest::default()).await.unwrap_err();
        assert_eq!(refused.code(), Code::Unauthenticated);
    }
    let mut shell = sidecar.client().await;
    assert_eq!(
        shell.health(HealthRequest::default()).await.unwrap().into_inner().version,
        env!("CARGO_PKG_VERSION")
    );
}

#[tokio::test]
async fn a_client_of_another_version_gets_only_that_refusal() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    for version in [None, Some(String::new()), Some("0.0.1".to_owned())] {
        let mut shell = sidecar.client_as(Credentials { version, ..Credentials::good() }).await;
        let refused = shell.create_session(everything()).await.unwrap_err();
        assert_eq!((refused.code(), code(&refused)), (Code::FailedPrecondition, "version"));
        assert!(refused.message().contains(env!("CARGO_PKG_VERSION")), "{refused:?}");
    }
    // Without the token the version is secret too.
    let wrong = Credentials { token: None, version: Some("0.0.1".to_owned()) };
    let refused = sidecar.client_as(wrong).await.health(HealthRequest::default()).await.unwrap_err();
    assert_eq!(refused.code(), Code::Unauthenticated);
}

/// Connects as another user: only this thread's credentials change.
fn connect_as(uid: u32, socket: &std::path::Path) -> UnixStream {
    let socket = socket.to_owned();
    let connecting = std::thread::spawn(move || {
        let uid = Uid::from_raw(uid);
        rustix::thread::set_thread_res_uid(uid, uid, uid).unwrap();
        UnixStream::connect(socket).unwrap()
    });
    connecting.join().unwrap()
}

#[tokio::test]
async fn another_user_is_let_in_only_by_number() {
    let Some(fixture) = Fixture::new() else { return };
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let (allowed, stranger) = (54_321, 54_322);
    for folder in ["", "run"] {
        std::fs::create_dir_all(fixture.path(folder)).unwrap();
        std::fs::set_permissions(fixture.path(folder), Permissions::from_mode(0o755)).unwrap();
    }
    let sidecar = standalone(&fixture, &["--allow-uid", &allowed.to_string()]).await;
    // The stranger has the token, but receives no bytes.
    let mut stream = connect_as(stranger, &sidecar.socket);
    stream.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let read = stream.read(&mut [0; 1]);
    assert!(matches!(read, Ok(0)) || read.is_err_and(|error| error.raw_os_error() == Some(104)));
    if let Some(mut shell) = client_if_open(connect_as(stranger, &sidecar.socket), Credentials::good()).await
    {
        shell.health(HealthRequest::default()).await.unwrap_err();
    }
    let mut shell = client(connect_as(allowed, &sidecar.socket), Credentials::good()).await;
    shell.health(HealthRequest::default()).await.unwrap();
    let mut shell =
        client(connect_as(allowed, &sidecar.socket), Credentials { token: None, ..Credentials::good() })
            .await;
    assert_eq!(shell.health(HealthRequest::default()).await.unwrap_err().code(), Code::Unauthenticated);
}

#[tokio::test]
async fn socket_without_a_client_user_is_private() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    let mode = |path: &std::path::Path| path.metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&sidecar.socket), 0o600);
    assert_eq!(mode(sidecar.socket.parent().unwrap()), 0o700);
}

#[tokio::test]
async fn a_session_of_another_connection_is_not_there() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    let (mut owner, mut other) = (sidecar.client().await, sidecar.client().await);
    let owned = session(&mut owner).await;
    let mut request = exec(&owned, "read -r line; echo $line");
    request.stdin_open = true;
    let (command_id, running) = begin(&mut owner, request).await.unwrap();

    assert!(other.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions.is_empty());
    let mut codes = Vec::new();
    codes.push(run(&mut other, exec(&owned, "echo x >> counter")).await.unwrap_err());
    let command_id_of_owner = command_id.clone();
    codes.push(other.cancel(CancelRequest { command_id }).await.unwrap_err());
    let write = WriteStdinRequest {
        command_id: command_id_of_owner.clone(),
        bytes: b"theirs\n".to_vec(),
        close: true,
    };
    codes.push(other.write_stdin(write).await.unwrap_err());
    codes.push(other.kill_session(KillSessionRequest { session_id: owned.clone() }).await.unwrap_err());
    // The answers are the same as for ids that no connection has.
    codes.push(run(&mut other, exec(&"0".repeat(32), "true")).await.unwrap_err());
    for id in ["", "0", &"g".repeat(32), &"0".repeat(64), "../x"] {
        codes.push(run(&mut other, exec(id, "true")).await.unwrap_err());
    }
    for status in codes {
        assert_eq!((status.code(), code(&status)), (Code::NotFound, "not_found"), "{status:?}");
    }
    // The owner can do all of this.
    let write = WriteStdinRequest { command_id: command_id_of_owner, bytes: b"mine\n".to_vec(), close: true };
    owner.write_stdin(write).await.unwrap();
    assert_eq!(finish(running).await.unwrap().stdout, "mine\n");
    assert!(!fixture.path("shared/counter").exists());
    assert_eq!(owner.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions.len(), 1);
    owner.kill_session(KillSessionRequest { session_id: owned }).await.unwrap();
}

#[tokio::test]
async fn sessions_of_one_connection_have_states_of_their_own() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let (first_session, second_session) = (session(&mut shell).await, session(&mut shell).await);
    assert_ne!(first_session, second_session);
    output(&mut shell, &first_session, "v=one").await;
    output(&mut shell, &second_session, "v=two").await;
    assert_eq!(output(&mut shell, &first_session, "echo $v").await, "one\n");
    assert_eq!(output(&mut shell, &second_session, "echo $v").await, "two\n");
}

/// With and without namespaces, a session cannot make a socket to connect with.
#[tokio::test]
async fn a_session_cannot_reach_the_socket_of_its_own_sidecar() {
    if Fixture::new().is_none() {
        return;
    }
    for (outer, posture) in
        [(KernelEnvironment::Nothing, None), (KernelEnvironment::StockContainer, Some("contained"))]
    {
        let fixture = Fixture::new().unwrap();
        let sidecar = standalone_in(&fixture, &[], outer).await;
        let mut shell = sidecar.client().await;
        let health = shell.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap();
        assert!(posture.is_none_or(|posture| health.posture == posture), "{health:?}");
        let session = session(&mut shell).await;
        let socket = sidecar.socket.display();
        let attack = format!(
            "perl -e 'use Socket; socket(S, AF_UNIX, SOCK_STREAM, 0) && connect(S, pack_sockaddr_un(\"{socket}\")) || exit 1'"
        );
        let result = run(&mut shell, exec(&session, &attack)).await.unwrap();
        assert_eq!(result.exited.ending, Some(Ending::Code(1)), "{result:?}");
        // The session cannot read the token either.
        let token = format!("cat {}", fixture.path("token").display());
        let result = run(&mut shell, exec(&session, &token)).await.unwrap();
        assert_eq!((result.exited.ending, result.stdout.as_str()), (Some(Ending::Code(1)), ""), "{result:?}");
        // The control: an unconfined program connects and reads the token.
        let status = outside(&["bash", "-c", &format!("{attack} && {token}")]);
        assert!(status.success(), "the control");
    }
}

#[expect(clippy::disallowed_methods, reason = "the control is a program")]
fn outside(command: &[&str]) -> std::process::ExitStatus {
    std::process::Command::new(command[0])
        .args(&command[1..])
        .stdout(std::process::Stdio::null())
        .status()
        .unwrap()
}
