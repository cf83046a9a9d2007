//! Ends of clients, sidecars and parents: no process is left, and no command has run twice.

use std::{
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use portcullis_shell_protocol::KillSessionRequest;
use rustix::process::Signal;
use tonic::Code;

use super::sidecar::{
    Credentials, Shell, begin, children, client, code, config, embedded, everything, exec, finish, output,
    run, session, setup_line, signal, standalone, start_embedded, wait_until_async,
};
use crate::fixture::{Fixture, marker, processes_with};

/// A command that starts two processes that are hard to find. The shell waits for one of them.
fn tree(marker: &str) -> String {
    format!(
        "echo x >> counter; (setsid bash -c '(exec -a {marker} sleep 60 &)' &); exec -a {marker} sleep 60"
    )
}

async fn running(shell: &mut Shell, marker: &str) -> tonic::Streaming<portcullis_shell_protocol::ExecEvent> {
    let session = session(shell).await;
    let (_, stream) = begin(shell, exec(&session, &tree(marker))).await.unwrap();
    wait_until_async("it runs", || {
        processes_with(marker).iter().filter(|line| line.starts_with(marker)).count() == 2
    })
    .await;
    stream
}

fn counted(fixture: &Fixture) -> String {
    std::fs::read_to_string(fixture.path("shared/counter")).unwrap()
}

#[tokio::test]
async fn a_clients_end_ends_its_commands_and_no_others() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    let (mut goes, mut stays) = (sidecar.client().await, sidecar.client().await);
    let (marker_goes, marker_stays) = (marker("client-goes"), marker("client-stays"));
    let stream_goes = running(&mut goes, &marker_goes).await;
    let stream_stays = running(&mut stays, &marker_stays).await;
    drop((goes, stream_goes));
    wait_until_async("it is dead", || processes_with(&marker_goes).is_empty()).await;
    let of_other = processes_with(&marker_stays);
    assert_eq!(of_other.iter().filter(|line| line.starts_with(&marker_stays)).count(), 2, "{of_other:?}");
    drop((stays, stream_stays));
    wait_until_async("it is dead", || processes_with(&marker_stays).is_empty()).await;
    assert_eq!(counted(&fixture), "x\nx\n");
}

#[tokio::test]
async fn a_session_that_is_being_started_ends_with_its_client() {
    let Some(fixture) = Fixture::new() else { return };
    let sidecar = standalone(&fixture, &[]).await;
    for _ in 0..10 {
        let mut shell = sidecar.client().await;
        let creation = async move { shell.create_session(everything()).await };
        // Long enough for the request to be sent, too short for the answer.
        let _ = tokio::time::timeout(Duration::from_millis(3), creation).await;
    }
    wait_until_async("no session is left", || children(sidecar.child.id()).is_empty()).await;
}

#[tokio::test]
async fn a_killed_sidecar_leaves_no_process_and_reruns_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let mut sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let marker = marker("daemon-killed");
    let stream = running(&mut shell, &marker).await;
    sidecar.child.kill().unwrap();
    let error = finish(stream).await.unwrap_err();
    assert!(matches!(error.code(), Code::Unavailable | Code::Unknown), "{error:?}");
    let error = shell.create_session(everything()).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable, "{error:?}");
    wait_until_async("nothing is left", || processes_with(&marker).is_empty()).await;
    sidecar.child.wait().unwrap();
    // The socket that it left behind does not block the next sidecar.
    let sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let fresh = session(&mut shell).await;
    assert_eq!(output(&mut shell, &fresh, "cat counter").await, "x\n");
}

#[tokio::test]
async fn a_stopping_sidecar_lets_a_short_command_end() {
    let Some(fixture) = Fixture::new() else { return };
    let mut sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let session = session(&mut shell).await;
    let (_, stream) =
        begin(&mut shell, exec(&session, "until [ -e go ]; do :; done; echo done")).await.unwrap();
    sidecar.terminate();
    // The sidecar starts no more sessions once it has noticed the signal.
    let refused = loop {
        match shell.create_session(everything()).await {
            // The number of sessions is limited, so end each session immediately.
            Ok(created) => {
                let kill = KillSessionRequest { session_id: created.into_inner().session_id };
                shell.kill_session(kill).await.unwrap();
            }
            Err(status) => break status,
        }
    };
    assert_eq!((refused.code(), code(&refused)), (Code::Unavailable, "stopping"));
    std::fs::write(fixture.path("shared/go"), "").unwrap();
    assert_eq!(finish(stream).await.unwrap().stdout, "done\n");
    wait_until_async("it has ended", || sidecar.child.try_wait().unwrap().is_some()).await;
    assert!(sidecar.child.wait().unwrap().success());
    assert!(!sidecar.socket.exists());
}

#[tokio::test]
async fn a_stopping_sidecar_waits_only_for_a_limited_time() {
    let Some(fixture) = Fixture::new() else { return };
    let mut sidecar = standalone(&fixture, &[]).await;
    let mut shell = sidecar.client().await;
    let marker = marker("told-to-stop");
    let stream = running(&mut shell, &marker).await;
    // A silent connection does not delay the stop either.
    let silent = sidecar.connect();
    let begun = Instant::now();
    signal(&sidecar.child, Signal::INT);
    let exited = finish(stream).await.unwrap().exited;
    assert_eq!(exited.interruption, "cancelled");
    wait_until_async("it has ended", || sidecar.child.try_wait().unwrap().is_some()).await;
    assert!(sidecar.child.wait().unwrap().success());
    assert!(begun.elapsed() >= Duration::from_secs(5), "the grace");
    assert_eq!(processes_with(&marker), Vec::<String>::new());
    assert_eq!(counted(&fixture), "x\n");
    drop(silent);
}

#[tokio::test]
async fn an_embedded_sidecar_ends_with_its_parent_however_that_ends() {
    let Some(fixture) = Fixture::new() else { return };
    let marker = marker("parent");
    let mut parent = parent(&fixture, &marker);
    wait_until_async("it runs", || {
        processes_with(&marker).iter().filter(|line| line.starts_with(&marker)).count() == 2
    })
    .await;
    let sidecars = children(parent.id());
    assert!(!sidecars.is_empty() && sidecars.iter().all(|sidecar| is_alive(*sidecar)));
    parent.kill().unwrap();
    parent.wait().unwrap();
    wait_until_async("the sidecar has ended", || !sidecars.iter().any(|sidecar| is_alive(*sidecar))).await;
    wait_until_async("nothing is left", || processes_with(&marker).is_empty()).await;
}

/// Starts this test program as the parent of a sidecar. It runs only the test [`a_parent`].
#[expect(clippy::disallowed_methods, reason = "the parent is a program")]
fn parent(fixture: &Fixture, marker: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "server::ends::a_parent"])
        .env("TMPDIR", fixture.path(""))
        .env(PARENT, marker)
        .stdout(Stdio::null())
        .spawn()
        .unwrap()
}

const PARENT: &str = "PORTCULLIS_TEST_PARENT";

/// The parent, which runs until it is killed. Does nothing unless [`parent`] started this program.
#[tokio::test]
async fn a_parent() {
    let Ok(marker) = std::env::var(PARENT) else { return };
    let fixture = Fixture::new().unwrap();
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    finish(running(&mut shell, &marker).await).await.unwrap();
}

/// Whether a process is alive. A zombie is not.
fn is_alive(process: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"));
    stat.is_ok_and(|stat| !stat.rsplit(')').next().unwrap().trim_start().starts_with('Z'))
}

#[tokio::test]
async fn an_embedded_sidecar_that_is_killed_leaves_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut sidecar, mut shell) = embedded(config(&fixture)).await;
    let marker = marker("embedded-killed");
    let stream = running(&mut shell, &marker).await;
    sidecar.child.kill().unwrap();
    finish(stream).await.unwrap_err();
    wait_until_async("nothing is left", || processes_with(&marker).is_empty()).await;
    assert_eq!(counted(&fixture), "x\n");
    let error = run(&mut shell, exec(&"0".repeat(32), "true")).await.unwrap_err();
    assert_eq!(error.code(), Code::Unavailable);
}

#[tokio::test]
async fn malformed_setup_ends_an_embedded_sidecar() {
    use std::io::{Read as _, Write as _};
    let Some(fixture) = Fixture::new() else { return };
    let good = setup_line(&config(&fixture));
    let long = format!("{}{good}", " ".repeat(256 << 10));
    let bad_token = good.replace("0123456789abcdef", "short");
    let unknown_key = good.replacen('{', "{\"more\":1,", 1);
    for setup in ["\n", "{}\n", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", &long, &bad_token, &unknown_key] {
        let (mut sidecar, mut stream) = start_embedded();
        // The sidecar may end before it has read everything.
        let _ = stream.write_all(setup.as_bytes());
        let _ = stream.shutdown(std::net::Shutdown::Write);
        let _ = stream.read_to_end(&mut Vec::new());
        assert!(!sidecar.child.wait().unwrap().success(), "{setup:.60}");
    }
    // The control: the intact line, sent as single bytes.
    let (_sidecar, mut stream) = start_embedded();
    for byte in good.as_bytes() {
        stream.write_all(&[*byte]).unwrap();
    }
    let mut shell = client(stream, Credentials::good()).await;
    session(&mut shell).await;
}
