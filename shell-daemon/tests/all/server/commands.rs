//! Commands: input, output, deadlines, cancellation, and the report of each end.

use std::time::Duration;

use portcullis_shell_protocol::{
    CancelRequest, ExecRequest, KillSessionRequest, ListSessionsRequest, WriteStdinRequest,
    exec_event::Event, exited::Ending,
};

use super::sidecar::{
    begin, code, config, embedded, exec, exec_within, finish, memory_kib, output, run, session,
    wait_until_async,
};
use crate::fixture::{Fixture, doubling_timeouts, marker, processes_with};

#[tokio::test]
async fn input_comes_with_the_command_and_after_it() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let request = ExecRequest { stdin: b"first\n".to_vec(), ..exec(&session, "cat") };
    assert_eq!(run(&mut shell, request).await.unwrap().stdout, "first\n");
    assert_eq!(output(&mut shell, &session, "cat").await, "", "an input that ends immediately");

    let request = ExecRequest { stdin: b"a".to_vec(), stdin_open: true, ..exec(&session, "cat") };
    let (command_id, stream) = begin(&mut shell, request).await.unwrap();
    let write = |bytes: &[u8], close| WriteStdinRequest {
        command_id: command_id.clone(),
        bytes: bytes.to_vec(),
        close,
    };
    shell.write_stdin(write(b"b", false)).await.unwrap();
    shell.write_stdin(write(b"c", true)).await.unwrap();
    assert_eq!(finish(stream).await.unwrap().stdout, "abc");
    assert_eq!(code(&shell.write_stdin(write(b"d", false)).await.unwrap_err()), "not_found");

    let request = ExecRequest { stdin_open: true, ..exec(&session, "exec <&-; echo closed; sleep 30") };
    let (command_id, mut stream) = begin(&mut shell, request).await.unwrap();
    let Some(Event::Output(_)) = stream.message().await.unwrap().unwrap().event else { panic!("no output") };
    let write = WriteStdinRequest { command_id, bytes: vec![0; 1 << 20], close: false };
    assert_eq!(code(&shell.write_stdin(write).await.unwrap_err()), "closed");
}

#[tokio::test]
async fn cancelling_kills_the_commands_tree_but_not_the_session() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    output(&mut shell, &session, "v=good").await;
    let marker = marker("server-cancel");
    let command = format!(
        "echo x >> counter; v=bad; (setsid bash -c 'exec -a {marker} sleep 60' &); exec -a {marker} sleep 60"
    );
    let (command_id, stream) = begin(&mut shell, exec(&session, &command)).await.unwrap();
    wait_until_async("it runs", || {
        processes_with(&marker).iter().filter(|line| line.starts_with(&marker)).count() == 2
    })
    .await;
    let listed = shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions;
    assert!(listed[0].busy);
    let busy = run(&mut shell, exec(&session, "echo x >> counter")).await.unwrap_err();
    assert_eq!(code(&busy), "busy");
    shell.cancel(CancelRequest { command_id: command_id.clone() }).await.unwrap();
    let exited = finish(stream).await.unwrap().exited;
    assert_eq!((exited.interruption.as_str(), exited.ending), ("cancelled", Some(Ending::Signal(9))));
    assert_eq!(exited.state, "killed");
    assert_eq!(processes_with(&marker), Vec::<String>::new());
    assert_eq!(output(&mut shell, &session, "echo $v; cat counter").await, "good\nx\n");
    let gone = shell.cancel(CancelRequest { command_id }).await.unwrap_err();
    assert_eq!(code(&gone), "not_found");
}

#[tokio::test]
async fn dropped_call_kills_its_command() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let marker = marker("server-drop");
    let command = format!("(setsid bash -c 'exec -a {marker} sleep 60' &); exec -a {marker} sleep 60");
    let (_, stream) = begin(&mut shell, exec(&session, &command)).await.unwrap();
    wait_until_async("it runs", || {
        processes_with(&marker).iter().filter(|line| line.starts_with(&marker)).count() == 2
    })
    .await;
    drop(stream);
    wait_until_async("it is dead", || processes_with(&marker).is_empty()).await;
    // The session may not have noticed the end yet.
    loop {
        match run(&mut shell, exec(&session, "echo on")).await {
            Ok(result) => break assert_eq!(result.stdout, "on\n"),
            Err(status) => assert_eq!(code(&status), "busy"),
        }
    }
}

#[tokio::test]
async fn a_command_that_takes_too_long_is_killed_and_ran_once() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let mut limits = doubling_timeouts(Duration::from_millis(300));
    loop {
        // Remove the file of the previous attempt, which was too short. Its processes are gone and cannot write the
        // file again.
        let _ = std::fs::remove_file(fixture.path("shared/counter"));
        let limit = limits.next().expect("it says a word in time");
        let request = exec_within(limit, &session, "echo x >> counter; echo up; sleep 60");
        let result = run(&mut shell, request).await.unwrap();
        assert_eq!(result.exited.interruption, "timeout");
        if result.stdout == "up\n" {
            break;
        }
    }
    assert_eq!(output(&mut shell, &session, "cat counter").await, "x\n");
}

#[tokio::test]
async fn requested_limits_are_capped_by_the_sidecars() {
    let Some(fixture) = Fixture::new() else { return };
    let mut short = config(&fixture);
    short.session.command_timeout = Duration::from_millis(200);
    short.session.max_command_timeout = Duration::from_millis(400);
    let (_sidecar, mut shell) = embedded(short).await;
    let of_short = session(&mut shell).await;
    for timeout_ms in [0, u64::MAX] {
        let request = ExecRequest { timeout_ms, ..exec(&of_short, "sleep 60") };
        assert_eq!(run(&mut shell, request).await.unwrap().exited.interruption, "timeout");
    }

    let mut config = config(&fixture);
    config.session.output_bytes = 1000;
    let (_sidecar, mut shell) = embedded(config).await;
    let session = session(&mut shell).await;
    for max_output_bytes in [0, u64::MAX, 1000] {
        let request = ExecRequest { max_output_bytes, ..exec(&session, "printf '%5000s'") };
        let result = run(&mut shell, request).await.unwrap();
        assert_eq!(
            (result.stdout.len(), result.exited.output_bytes, result.exited.truncated),
            (1000, 5000, true)
        );
    }
    let request = ExecRequest { max_output_bytes: 10, ..exec(&session, "printf '%5000s'") };
    assert_eq!(run(&mut shell, request).await.unwrap().stdout.len(), 10);
    let result = run(&mut shell, exec(&session, "printf '%1000s'")).await.unwrap();
    assert_eq!((result.stdout.len(), result.exited.truncated), (1000, false));
}

#[tokio::test]
async fn a_slow_reader_slows_the_command_and_takes_no_memory() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.session.output_bytes = 1 << 30;
    let (sidecar, mut shell) = embedded(config).await;
    let session = session(&mut shell).await;
    output(&mut shell, &session, "head -c 1000000 /dev/zero").await;
    let before = memory_kib(&sidecar.child, "VmHWM:");
    let total = 100_000_000;
    let command = format!("head -c {total} /dev/zero; touch done");
    let (_, mut stream) = begin(&mut shell, exec(&session, &command)).await.unwrap();
    let mut read = 0;
    for _ in 0..20 {
        let Some(Event::Output(output)) = stream.message().await.unwrap().unwrap().event else {
            panic!("no output")
        };
        read += output.bytes.len();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(!fixture.path("shared/done").exists(), "the command waits for its reader");
    let exited = loop {
        match stream.message().await.unwrap().unwrap().event.unwrap() {
            Event::Output(output) => read += output.bytes.len(),
            Event::Exited(exited) => break exited,
            Event::Started(_) => panic!("a second start"),
        }
    };
    assert_eq!((read, exited.output_bytes, exited.truncated), (total, total as u64, false));
    let grown = memory_kib(&sidecar.child, "VmHWM:") - before;
    assert!(grown < 24 << 10, "the sidecar grew by {grown} KiB");
}

#[tokio::test]
async fn a_client_that_never_reads_delays_no_deadline_or_session() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let mut limits = doubling_timeouts(Duration::from_millis(500));
    loop {
        let limit = limits.next().expect("it writes more than can wait for a client");
        let (_, stream) = begin(&mut shell, exec_within(limit, &session, "cat /dev/zero")).await.unwrap();
        // No message is read, and the next command of the session still runs.
        loop {
            match run(&mut shell, exec(&session, "echo on")).await {
                Ok(result) => break assert_eq!(result.stdout, "on\n"),
                Err(status) => assert_eq!(code(&status), "busy"),
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let exited = finish(stream).await.unwrap().exited;
        assert_eq!(exited.interruption, "timeout");
        if exited.truncated {
            break;
        }
    }
}

#[tokio::test]
async fn a_session_ends_immediately_whatever_begins_in_it() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    for _ in 0..20 {
        let session = session(&mut shell).await;
        let mut other = shell.clone();
        let request = exec(&session, "sleep 60");
        let kill = KillSessionRequest { session_id: session };
        let both = async { tokio::join!(run(&mut other, request), shell.kill_session(kill)) };
        let (result, killed) = tokio::time::timeout(Duration::from_secs(120), both).await.unwrap();
        killed.unwrap();
        match result {
            Ok(result) => assert_eq!(result.exited.interruption, "cancelled"),
            Err(status) => assert!(matches!(code(&status), "session_ended" | "not_found"), "{status:?}"),
        }
    }
}

#[tokio::test]
async fn new_protected_paths_of_a_command_are_reported() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let command = "cd $PORTCULLIS_SHARED; mkdir -p a/.git/hooks b; touch a/.git/hooks/pre-commit b/file";
    let exited = run(&mut shell, exec(&session, command)).await.unwrap().exited;
    assert!(exited.protected_paths.iter().any(|path| path.starts_with("/shared/a/.git/hooks")), "{exited:?}");
    assert!(exited.protected_paths.iter().all(|path| path.starts_with("/shared/a/.git/hooks")), "{exited:?}");
    assert!(exited.protected_complete);
    let exited = run(&mut shell, exec(&session, "touch b/other")).await.unwrap().exited;
    assert_eq!(exited.protected_paths, Vec::<String>::new());
}

#[tokio::test]
async fn a_command_that_ends_its_session_says_so() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    let ended = run(&mut shell, exec(&session, "kill -9 $PPID; sleep 60")).await.unwrap_err();
    assert_eq!(code(&ended), "session_ended");
    let gone = run(&mut shell, exec(&session, "true")).await.unwrap_err();
    assert_eq!(code(&gone), "not_found");
    assert!(shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions.is_empty());
}

#[tokio::test]
async fn a_working_directory_is_below_a_mount() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let session = session(&mut shell).await;
    std::fs::create_dir(fixture.path("shared/src")).unwrap();
    let request = ExecRequest { workdir: "/shared/src".to_owned(), ..exec(&session, "basename $PWD") };
    assert_eq!(run(&mut shell, request).await.unwrap().stdout, "src\n");
    for workdir in
        ["src", "/", "/etc", "/vault", "/shared/..", "/shared/../vault", "/state", "//", "/shared\0"]
    {
        let request = ExecRequest { workdir: workdir.to_owned(), ..exec(&session, "echo x >> counter") };
        let refused = run(&mut shell, request).await.unwrap_err();
        assert_eq!(code(&refused), "invalid", "{workdir}");
    }
    let refused = run(&mut shell, exec(&session, "true\0")).await.unwrap_err();
    assert_eq!(code(&refused), "invalid");
    let refused = run(&mut shell, exec(&session, &"x".repeat((1 << 20) + 1))).await.unwrap_err();
    assert_eq!(code(&refused), "invalid");
    assert!(!fixture.path("shared/counter").exists());
}
