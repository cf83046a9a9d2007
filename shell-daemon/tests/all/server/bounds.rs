//! Bounds on a client's requests.

use std::time::Duration;

use portcullis_policy::CommandRules;
use portcullis_shell_protocol::{
    CreateSessionRequest, ExecEvent, HealthRequest, KillSessionRequest, ListSessionsRequest, Mount,
    SessionLimits, exited::Ending,
};
use portcullis_types::ShellPosture;
use tonic::{Status, Streaming};

use super::sidecar::{
    Embedded, Shell, begin, children, code, config, embedded, everything, exec, exec_within, finish, output,
    run, session, wait_until_async,
};
use crate::fixture::{Fixture, doubling_timeouts, marker, processes_with};

fn mount(name: &str, access: &str) -> Mount {
    Mount { name: name.to_owned(), access: access.to_owned() }
}

#[tokio::test]
async fn a_session_may_have_fewer_mounts_than_the_sidecar() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let request = CreateSessionRequest {
        mounts: vec![mount("shared", "read"), mount("tmp", "write")],
        ..CreateSessionRequest::default()
    };
    let created = shell.create_session(request).await.unwrap().into_inner();
    assert_eq!(created.mounts, [mount("shared", "read"), mount("tmp", "write")]);
    let narrow_session = created.session_id;
    let wide_session = session(&mut shell).await;
    // In a separate file tree a mount has the clients' name, and its real path does not exist.
    let has_tree = output(&mut shell, &wide_session, "echo $PORTCULLIS_SHARED").await == "/shared\n";
    for (command, in_wide, in_narrow) in [
        ("echo x > $PORTCULLIS_SHARED/file".to_owned(), true, false),
        ("cat $PORTCULLIS_READ/file".to_owned(), true, false),
        (format!("cat {}", fixture.path("read/file").display()), !has_tree, false),
        ("echo x > $PORTCULLIS_TMP/file".to_owned(), true, true),
        ("ls $PORTCULLIS_SHARED".to_owned(), true, true),
        (format!("cat {}", fixture.path("vault/secret").display()), false, false),
        ("echo x > $PORTCULLIS_READ/file".to_owned(), false, false),
    ] {
        for (session, allowed) in [(&wide_session, in_wide), (&narrow_session, in_narrow)] {
            let request = exec(session, &format!("({command}) >/dev/null 2>&1 && echo yes || echo no"));
            let result = run(&mut shell, request).await.unwrap();
            assert_eq!(result.stdout, if allowed { "yes\n" } else { "no\n" }, "{command}");
        }
    }
}

#[tokio::test]
async fn a_session_never_has_more_mounts_than_the_sidecar() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    for mounts in [
        vec![],
        vec![mount("vault", "read")],
        vec![mount("shared", "write"), mount("read", "write")],
        vec![mount("shared", "write"), mount("../vault", "read")],
        vec![mount("shared", "write"), mount("shared", "write")],
        vec![mount("shared", "")],
        vec![mount("shared", "execute")],
        vec![mount("", "read")],
    ] {
        let request = CreateSessionRequest { mounts: mounts.clone(), ..CreateSessionRequest::default() };
        let refused = shell.create_session(request).await.unwrap_err();
        assert_eq!(code(&refused), "mounts", "{mounts:?}");
    }
    let both = CreateSessionRequest { mounts: vec![mount("shared", "read")], ..everything() };
    assert_eq!(code(&shell.create_session(both).await.unwrap_err()), "invalid");
    assert!(shell.list_sessions(ListSessionsRequest {}).await.unwrap().into_inner().sessions.is_empty());
}

#[tokio::test]
async fn variables_are_set_only_by_names_that_are_allowed() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let with = |name: &str, value: &str| CreateSessionRequest {
        environment: [(name.to_owned(), value.to_owned())].into(),
        ..everything()
    };
    for name in ["LD_PRELOAD", "BASH_ENV", "PATH", "allowed", "ALLOWED ", ""] {
        let refused = shell.create_session(with(name, "x")).await.unwrap_err();
        assert_eq!(code(&refused), "environment", "{name}");
    }
    for value in ["a\0b", &"x".repeat(17 << 10)] {
        let refused = shell.create_session(with("ALLOWED", value)).await.unwrap_err();
        assert_eq!(code(&refused), "invalid");
    }
    let created = shell.create_session(with("ALLOWED", "it's $HOME\n")).await.unwrap().into_inner();
    let result = run(&mut shell, exec(&created.session_id, "printf '%s' \"$ALLOWED\"")).await.unwrap();
    assert_eq!(result.stdout, "it's $HOME\n");
}

#[tokio::test]
async fn limits_can_be_lowered_and_not_raised() {
    let Some(fixture) = Fixture::new() else { return };
    let (_sidecar, mut shell) = embedded(config(&fixture)).await;
    let sidecar_limits = shell.health(HealthRequest::default()).await.unwrap().into_inner().limits.unwrap();
    let largest_limits = SessionLimits {
        memory_bytes: u64::MAX,
        processes: u64::MAX,
        file_bytes: u64::MAX,
        output_bytes: u64::MAX,
        command_timeout_ms: 0,
    };
    for limits in [None, Some(SessionLimits::default()), Some(largest_limits)] {
        let request = CreateSessionRequest { limits, ..everything() };
        let created = shell.create_session(request).await.unwrap().into_inner();
        assert_eq!(created.limits, Some(sidecar_limits));
    }
    let limits =
        SessionLimits { file_bytes: 2 << 20, output_bytes: 10, command_timeout_ms: 300, ..sidecar_limits };
    let request = CreateSessionRequest { limits: Some(limits), ..everything() };
    let created = shell.create_session(request).await.unwrap().into_inner();
    assert_eq!(created.limits, Some(limits));
    let limited_session = created.session_id;
    let result = run(&mut shell, exec(&limited_session, "sleep 60")).await.unwrap();
    assert_eq!(result.exited.interruption, "timeout");
    // A command may ask for more time than its session's timeout, up to the sidecar's longest timeout.
    let command = "head -c 3000000 /dev/zero > file; printf %100s";
    let result =
        run(&mut shell, exec_within(Duration::from_secs(60), &limited_session, command)).await.unwrap();
    let delivered_bytes = result.stdout.len() + result.stderr.len();
    assert_eq!((result.exited.interruption.as_str(), delivered_bytes), ("", 10));
    assert_eq!(fixture.path("shared/file").metadata().unwrap().len(), 2 << 20);
}

#[tokio::test]
async fn a_session_below_the_requested_posture_is_refused() {
    let Some(fixture) = Fixture::new() else { return };
    let (sidecar, mut shell) = embedded(config(&fixture)).await;
    let requiring =
        |posture: &str| CreateSessionRequest { least_posture: posture.to_owned(), ..everything() };
    assert_eq!(code(&shell.create_session(requiring("perfect")).await.unwrap_err()), "invalid");
    let proven = shell.health(HealthRequest::default()).await.unwrap().into_inner().posture.unwrap().posture;
    for posture in ShellPosture::ALL {
        let created = shell.create_session(requiring(posture.as_str())).await;
        if posture <= proven.parse().unwrap() {
            created.unwrap();
        } else {
            assert_eq!(code(&created.unwrap_err()), "posture");
        }
    }
    drop((shell, sidecar));
}

#[tokio::test]
async fn sessions_and_commands_have_their_number() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.service.sessions_per_connection = 3;
    config.service.commands = 2;
    let (_sidecar, mut shell) = embedded(config).await;
    let mut sessions = Vec::new();
    for _ in 0..3 {
        sessions.push(session(&mut shell).await);
    }
    let refused = shell.create_session(everything()).await.unwrap_err();
    assert_eq!(code(&refused), "limit");
    let first_command = begin(&mut shell, exec(&sessions[0], "sleep 60")).await.unwrap();
    let _second_command = begin(&mut shell, exec(&sessions[1], "sleep 60")).await.unwrap();
    let refused = run(&mut shell, exec(&sessions[2], "echo x >> counter")).await.unwrap_err();
    assert_eq!(code(&refused), "limit");
    // Each permit is given back.
    drop(first_command);
    wait_until_async("its place is free", || true).await;
    loop {
        match run(&mut shell, exec(&sessions[2], "echo y >> counter")).await {
            Ok(_) => break,
            Err(status) => assert_eq!(code(&status), "limit"),
        }
    }
    shell.kill_session(KillSessionRequest { session_id: sessions[0].clone() }).await.unwrap();
    session(&mut shell).await;
    assert_eq!(output(&mut shell, &sessions[2], "cat counter").await, "y\n");
}

#[tokio::test]
async fn a_session_that_rests_too_long_is_ended_with_its_jobs() {
    let Some(fixture) = Fixture::new() else { return };
    let marker = marker("idle");
    let mut rests = doubling_timeouts(Duration::from_millis(400));
    let (_sidecar, mut shell, resting, stream) = loop {
        let rest = rests.next().expect("a new session does not rest too long before its first command");
        if let Some(used) = use_in_time(&fixture, rest, &marker).await {
            break used;
        }
    };
    wait_until_async("it is ended", || processes_with(&marker).is_empty()).await;
    assert_eq!(code(&run(&mut shell, exec(&resting, "true")).await.unwrap_err()), "not_found");
    assert_eq!(finish(stream).await.unwrap().stdout, "on\n");
}

/// A sidecar, a client, an idle session with a job, and another session whose command runs for longer than a session may
/// be idle. `None` if a session was ended before it was used.
async fn use_in_time(
    fixture: &Fixture,
    rest: Duration,
    marker: &str,
) -> Option<(Embedded, Shell, String, Streaming<ExecEvent>)> {
    let mut config = config(fixture);
    config.session.idle_timeout = rest;
    let (sidecar, mut shell) = embedded(config).await;
    let resting = session(&mut shell).await;
    let job = format!("(exec -a {marker} sleep 60 >/dev/null 2>&1 &)");
    let result = unless_ended(run(&mut shell, exec(&resting, &job)).await)?;
    assert_eq!(result.exited.ending, Some(Ending::Code(0)), "{result:?}");
    // A session is not idle while its command runs, however long that takes.
    let working = session(&mut shell).await;
    let work = format!("sleep {}; echo on", 2 * rest.as_secs() + 1);
    let (_, stream) = unless_ended(begin(&mut shell, exec(&working, &work)).await)?;
    Some((sidecar, shell, resting, stream))
}

/// The result of a call, or `None` if its session had been ended already.
fn unless_ended<T>(answer: Result<T, Status>) -> Option<T> {
    if let Err(status) = &answer {
        assert!(matches!(code(status), "not_found" | "session_ended"), "{status:?}");
    }
    answer.ok()
}

#[tokio::test]
async fn commands_are_judged_by_their_whole_text() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.commands = CommandRules::parse(["echo", "cat"], ["cat counter"], Some(&["&&", ">"])).unwrap();
    let (_sidecar, mut shell) = embedded(config).await;
    let session = session(&mut shell).await;
    for command in [
        "echo x >> counter && curl example.com",
        "echo x >> counter; echo y",
        "echo $(echo x >> counter)",
        "cat counter",
        "$command",
        "echo 'x",
    ] {
        let refused = run(&mut shell, exec(&session, command)).await.unwrap_err();
        assert_eq!(code(&refused), "command_denied", "{command}");
    }
    assert!(!fixture.path("shared/counter").exists(), "nothing of it was run");
    assert_eq!(output(&mut shell, &session, "echo a && echo b").await, "a\nb\n");
}

#[tokio::test]
async fn many_health_calls_start_one_session() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.service.health_cache = Duration::from_secs(3600);
    let (_sidecar, mut shell) = embedded(config).await;
    shell.health(HealthRequest::default()).await.unwrap();
    // From now on no session can be started.
    for file in std::fs::read_dir(fixture.path("state")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(code(&shell.create_session(everything()).await.unwrap_err()), "start");
    for _ in 0..50 {
        shell.health(HealthRequest::default()).await.unwrap();
    }
}

#[tokio::test]
async fn dropped_health_calls_do_not_pile_up() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.service.health_cache = Duration::ZERO;
    let (sidecar, mut shell) = embedded(config).await;
    for _ in 0..100 {
        let dropped =
            tokio::time::timeout(Duration::from_millis(1), shell.health(HealthRequest::default())).await;
        drop(dropped);
        let sessions = children(sidecar.child.id());
        assert!(sessions.len() <= 1, "{sessions:?}");
    }
    shell.health(HealthRequest::default()).await.unwrap();
}

#[tokio::test]
async fn a_sidecar_whose_sessions_cannot_be_started_is_not_healthy() {
    let Some(fixture) = Fixture::new() else { return };
    let mut config = config(&fixture);
    config.service.health_cache = Duration::ZERO;
    let (_sidecar, mut shell) = embedded(config).await;
    shell.health(HealthRequest::default()).await.unwrap();
    for file in std::fs::read_dir(fixture.path("state")).unwrap() {
        std::fs::remove_file(file.unwrap().path()).unwrap();
    }
    assert_eq!(code(&shell.health(HealthRequest::default()).await.unwrap_err()), "start");
}
