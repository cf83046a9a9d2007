//! The sidecar that serves only its parent process.

use std::{io::Write as _, process::Command};

use portcullis_shell_daemon::{EMBEDDED_ENTRY, PostureChoice};
use portcullis_shell_protocol::{
    HealthRequest, KillSessionRequest, ListSessionsRequest, PostureReport, exited::Ending,
};
use portcullis_types::ShellPosture;

use super::sidecar::{
    Credentials, client, code, config, embedded, everything, exec, output, run, session, setup_line,
    spawn_embedded, wait_until_async,
};
use crate::fixture::{Fixture, marker, processes_with};

#[tokio::test]
async fn a_session_keeps_its_state_and_ends_on_request() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let created = shell.create_session(everything()).await.unwrap().into_inner();
    let session = created.session_id;
    assert_eq!(session.len(), 32);
    let posture = created.posture.unwrap();
    assert!(posture.posture.parse::<ShellPosture>().unwrap() >= ShellPosture::Contained, "{posture:?}");
    assert!(posture.summary.starts_with(&posture.posture), "{posture:?}");
    for name in ["limits", "privileges", "landlock", "seccomp"] {
        let layer = posture.layers.iter().find(|layer| layer.name == name).unwrap();
        assert!(!layer.evidence.is_empty(), "{layer:?}");
    }
    assert_eq!(output(&mut shell, &session, "cd /tmp; v=1; echo out; echo err >&2").await, "out\n");
    assert_eq!(output(&mut shell, &session, "echo $v; pwd").await, "1\n/tmp\n");
    let result = run(&mut shell, exec(&session, "echo err >&2; exit 7")).await.unwrap();
    assert_eq!((result.exited.ending, result.stderr.as_str()), (Some(Ending::Code(7)), "err\n"));
    assert_eq!((result.exited.state.as_str(), result.exited.output_bytes), ("carried", 4));
    let listed = shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].session_id.as_str(), listed[0].busy), (session.as_str(), false));
    shell.kill_session(KillSessionRequest { session_id: session.clone() }).await.unwrap();
    let error = run(&mut shell, exec(&session, "true")).await.unwrap_err();
    assert_eq!(code(&error), "not_found");
}

#[tokio::test]
async fn health_is_what_a_session_has_proven() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let health = shell.health(HealthRequest::default()).await.unwrap().into_inner();
    let created = shell.create_session(everything()).await.unwrap().into_inner();
    // Each session may have a separate user.
    let without_uid = |posture: Option<PostureReport>| PostureReport { uid: None, ..posture.unwrap() };
    assert_eq!(without_uid(health.posture), without_uid(created.posture));
    shell.kill_session(KillSessionRequest { session_id: created.session_id }).await.unwrap();
    assert_eq!(health.mounts.len(), 3);
    assert!(shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions.is_empty());
}

#[tokio::test]
async fn the_sidecar_ends_with_its_connection_and_leaves_nothing() {
    let Some(fixture) = Fixture::new() else { return };
    let (mut sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let marker = marker("embedded-end");
    let command = format!("(setsid bash -c 'exec -a {marker} sleep 60' >/dev/null 2>&1 &)");
    output(&mut shell, &session, &command).await;
    wait_until_async("the job runs", || processes_with(&marker).iter().any(|line| line.starts_with(&marker)))
        .await;
    drop(shell);
    wait_until_async("the sidecar has ended", || sidecar.child.try_wait().unwrap().is_some()).await;
    assert!(sidecar.child.wait().unwrap().success());
    assert_eq!(processes_with(&marker), Vec::<String>::new());
}

/// Descriptors that the parent left open reach neither the sidecar nor its sessions.
#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "the parent that leaves it open is a program")]
async fn descriptor_of_the_parent_reaches_no_command() {
    let Some(fixture) = Fixture::new() else { return };
    let secret = fixture.path("vault/secret");
    let script = format!("exec 9< {} 150<&9; exec \"$0\" \"$@\"", secret.display());
    for posture in ShellPosture::ALL {
        if posture == ShellPosture::Strong && Fixture::strong().is_none() {
            continue;
        }
        let mut config = config(&fixture);
        config.posture = PostureChoice::Exactly(posture);
        let mut command = Command::new("bash");
        command.args(["--norc", "-c", &script, env!("CARGO_BIN_EXE_portcullis-shelld"), EMBEDDED_ENTRY]);
        let (sidecar, mut stream) = spawn_embedded(&mut command);
        stream.write_all(setup_line(&config).as_bytes()).unwrap();
        let mut shell = client(stream, Credentials::good()).await;
        let session = session(&mut shell).await;
        let listing = "perl -e 'for (3..400) { print \"$_ \" if open(my $file, \"<&\", $_) }'";
        // The file for the session's next state.
        assert_eq!(output(&mut shell, &session, listing).await, "200 ", "{posture}");
        // Only root may list them.
        let sidecar_descriptors =
            std::fs::read_dir(format!("/proc/{}/fd", sidecar.child.id())).into_iter().flatten();
        let held = sidecar_descriptors
            .flatten()
            .filter(|descriptor| std::fs::read_link(descriptor.path()).is_ok_and(|to| to == secret));
        assert_eq!(held.count(), 0, "{posture}");
    }
    // The control: any other program inherits them.
    let mut command = Command::new("bash");
    let control_output = command.args(["-c", &script, "cat", "/proc/self/fd/150"]).output().unwrap();
    assert_eq!(control_output.stdout, b"vault/secret");
}
