//! The daemon that a parent process has to itself.

use portcullis_shell_daemon::protocol::{
    HealthRequest, KillSessionRequest, ListSessionsRequest, PostureReport, exited::Ending,
};

use portcullis_types::ShellPosture;

use super::sidecar::{code, config, embedded, everything, exec, output, run, session, soon};
use crate::world::{World, marker, processes_with};

#[tokio::test]
async fn a_session_keeps_its_state_and_ends_on_request() {
    let Some(world) = World::new() else { return };
    let (_daemon, mut shell) = embedded(config(&world)).await;
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
    let ran = run(&mut shell, exec(&session, "echo err >&2; exit 7")).await.unwrap();
    assert_eq!((ran.exited.ending, ran.stderr.as_str()), (Some(Ending::Code(7)), "err\n"));
    assert_eq!((ran.exited.state.as_str(), ran.exited.output_bytes), ("carried", 4));
    let listed = shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions;
    assert_eq!(listed.len(), 1);
    assert_eq!((listed[0].session_id.as_str(), listed[0].busy), (session.as_str(), false));
    shell.kill_session(KillSessionRequest { session_id: session.clone() }).await.unwrap();
    let gone = run(&mut shell, exec(&session, "true")).await.unwrap_err();
    assert_eq!(code(&gone), "not_found");
}

#[tokio::test]
async fn health_is_what_a_session_has_proven() {
    let Some(world) = World::new() else { return };
    let (_daemon, mut shell) = embedded(config(&world)).await;
    let health = shell.health(HealthRequest {}).await.unwrap().into_inner();
    let created = shell.create_session(everything()).await.unwrap().into_inner();
    // Each session may be of a user of its own.
    let without_uid = |posture: Option<PostureReport>| PostureReport { uid: None, ..posture.unwrap() };
    assert_eq!(without_uid(health.posture), without_uid(created.posture));
    shell.kill_session(KillSessionRequest { session_id: created.session_id }).await.unwrap();
    assert_eq!(health.mounts.len(), 3);
    assert!(shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions.is_empty());
}

#[tokio::test]
async fn the_daemon_ends_with_its_connection_and_leaves_nothing() {
    let Some(world) = World::new() else { return };
    let (mut daemon, mut shell) = embedded(config(&world)).await;
    let session = session(&mut shell).await;
    let marker = marker("embedded-end");
    let command = format!("(setsid bash -c 'exec -a {marker} sleep 60' >/dev/null 2>&1 &)");
    output(&mut shell, &session, &command).await;
    soon("the job runs", || processes_with(&marker).iter().any(|line| line.starts_with(&marker))).await;
    drop(shell);
    soon("the daemon has ended", || daemon.child.try_wait().unwrap().is_some()).await;
    assert!(daemon.child.wait().unwrap().success());
    assert_eq!(processes_with(&marker), Vec::<String>::new());
}
