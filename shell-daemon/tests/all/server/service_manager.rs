//! The sidecar under a service manager: socket activation and readiness notification.

use std::{
    os::unix::net::{UnixDatagram, UnixListener, UnixStream},
    path::Path,
    time::Duration,
};

use rustix::process::Signal;

use super::sidecar::{Credentials, Standalone, client, session, shelld, signal, wait_until_async};
use crate::fixture::Fixture;

#[tokio::test]
async fn a_socket_that_is_handed_over_is_served_and_left() {
    let Some(fixture) = Fixture::new() else { return };
    let socket = fixture.path("handed-over");
    let listener = UnixListener::bind(&socket).unwrap();
    let (command, _) = shelld(&fixture);
    let mut sidecar = Standalone { child: activate(&command, &listener), socket };
    drop(listener);
    let stream = UnixStream::connect(&sidecar.socket).unwrap();
    let mut shell = client(stream, Credentials::good()).await;
    session(&mut shell).await;
    // No file was made at the path from the command line.
    assert!(!fixture.path("run").exists());
    signal(&sidecar.child, Signal::TERM);
    wait_until_async("it has ended", || sidecar.child.try_wait().unwrap().is_some()).await;
    assert!(sidecar.child.wait().unwrap().success());
    assert!(sidecar.socket.exists(), "it is the service manager's");
}

/// Starts the command like a service manager: the listener is descriptor 3, and the variables name the process that
/// should use it.
#[expect(clippy::disallowed_methods, reason = "the sidecar is a program")]
fn activate(command: &std::process::Command, listener: &UnixListener) -> std::process::Child {
    let script = "exec 3<&0 </dev/null; export LISTEN_FDS=1 LISTEN_PID=$$; exec \"$@\"";
    std::process::Command::new("/bin/bash")
        .env_clear()
        .args(["-c", script, "bash"])
        .arg(command.get_program())
        .args(command.get_args())
        .stdin(std::process::Stdio::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())))
        .spawn()
        .unwrap()
}

#[test]
fn readiness_and_the_end_are_announced() {
    let Some(fixture) = Fixture::new() else { return };
    let notify_socket = fixture.path("notify");
    let notified = UnixDatagram::bind(&notify_socket).unwrap();
    notified.set_read_timeout(Some(Duration::from_secs(120))).unwrap();
    let (mut command, socket) = shelld(&fixture);
    let child = command.env("NOTIFY_SOCKET", &notify_socket).spawn().unwrap();
    let mut sidecar = Standalone { child, socket };
    assert!(receive_notification(&notified).contains("READY=1"));
    assert!(Path::new(&sidecar.socket).exists());
    signal(&sidecar.child, Signal::TERM);
    assert!(receive_notification(&notified).contains("STOPPING=1"));
    assert!(sidecar.child.wait().unwrap().success());
}

fn receive_notification(notified: &UnixDatagram) -> String {
    let mut text = vec![0; 4096];
    let read = notified.recv(&mut text).unwrap();
    String::from_utf8_lossy(&text[..read]).into_owned()
}

#[test]
fn json_logs_are_json_and_never_hold_the_token() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut command, socket) = shelld(&fixture);
    let child =
        command.arg("--json-logs").env("RUST_LOG", "trace").stderr(std::process::Stdio::piped()).spawn();
    let mut sidecar = Standalone { child: child.unwrap(), socket };
    let logs = sidecar.child.stderr.take().unwrap();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let reader = std::thread::spawn(move || std::io::read_to_string(logs).unwrap());
    runtime.block_on(async {
        wait_until_async("the sidecar listens", || UnixStream::connect(&sidecar.socket).is_ok()).await;
        session(&mut sidecar.client().await).await;
        signal(&sidecar.child, Signal::TERM);
        wait_until_async("it has ended", || sidecar.child.try_wait().unwrap().is_some()).await;
    });
    let logs = reader.join().unwrap();
    assert!(logs.lines().count() > 1);
    for line in logs.lines() {
        serde_json::from_str::<serde_json::Value>(line).unwrap();
    }
    assert!(logs.contains("started a session") && !logs.contains(super::sidecar::TOKEN), "{logs}");
}
