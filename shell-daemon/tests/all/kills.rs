//! Deadlines, cancellation and ends: no process is left, and no command runs twice.

use std::time::{Duration, Instant};

use portcullis_shell_daemon::{Completion, Ending, Interruption, ShellError, ShellSession, StateOutcome};

use crate::fixture::{
    Fixture, doubling_timeouts, marker, processes_with, request, request_with_timeout, wait_until,
};

const SHORT_TIMEOUT: Duration = Duration::from_millis(300);

#[test]
fn a_deadline_kills_the_whole_tree_but_not_the_session() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("deadline");
        session.output("v=good");
        let command = format!(
            "echo x >> counter; v=bad; sleeper() {{ exec -a {marker} sleep 30; }}; \
         sleeper & (setsid bash -c 'exec -a {marker} sleep 30' &) ; (trap '' TERM HUP INT; (sleeper &) &) ; \
         setsid setsid bash -c '(exec -a {marker} sleep 30 &) ; exec -a {marker} sleep 30' & echo up; wait; sleep 30"
        );
        let attempt = |limit| {
            // Remove the file of the previous attempt, which was too short. Its processes are gone and cannot write the
            // file again.
            let _ = std::fs::remove_file(fixture.path("shared/counter"));
            let begun = Instant::now();
            let result = session.attempt(request_with_timeout(&command, limit)).unwrap();
            let late = begun.elapsed().saturating_sub(limit);
            assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout));
            assert_eq!((result.end.ending, result.end.state), (Ending::Signal(9), StateOutcome::Killed));
            assert_eq!(processes_with(&marker), Vec::<String>::new());
            (result.stdout == "up\n", late)
        };
        let is_kept_and_prompt = |(is_kept, late)| is_kept && late < Duration::from_secs(1);
        let fits = doubling_timeouts(SHORT_TIMEOUT).map(attempt).any(is_kept_and_prompt);
        assert!(fits, "what came before the end is there, and the end comes within a second");
        assert_eq!(session.output("echo $v; cat counter"), "good\nx\n", "it ran once");
    });
}

#[test]
fn without_a_deadline_those_processes_live() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("control");
        // The control of the test above: the same escape without a kill.
        let result = session.run(&format!("(setsid bash -c 'exec -a {marker} sleep 30 >/dev/null 2>&1' &)"));
        assert!(result.end.jobs_left);
        wait_until("the process is there", || {
            processes_with(&marker).iter().any(|line| line.starts_with(&marker))
        });
        session.0.end().unwrap();
        assert_eq!(processes_with(&marker), Vec::<String>::new(), "and dies with the session");
    });
}

#[test]
fn a_caller_that_goes_away_takes_the_command_along() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("cancel");
        let (command_request, canceller) = request(&format!("echo x >> counter; exec -a {marker} sleep 30"));
        std::thread::scope(|scope| {
            let running = scope.spawn(|| session.0.run(&command_request, &mut |_| {}));
            wait_until("it runs", || !processes_with(&marker).is_empty());
            drop(canceller);
            let end = running.join().unwrap().unwrap();
            assert_eq!(end.completion, Completion::Interrupted(Interruption::Cancelled));
        });
        assert_eq!(processes_with(&marker), Vec::<String>::new());
        assert_eq!(session.output("cat counter"), "x\n");
    });
}

#[test]
fn stopped_and_signal_ignoring_commands_are_killed() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        for command in ["kill -STOP $$", "trap '' TERM INT HUP QUIT; while :; do :; done", "sleep 30 | cat"] {
            let result = session.attempt(request_with_timeout(command, SHORT_TIMEOUT)).unwrap();
            assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout), "{command}");
        }
        assert_eq!(session.output("echo on"), "on\n");
    });
}

#[test]
fn killing_the_commands_init_ends_the_session_and_all_in_it() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("init");
        let result = session.attempt(request(&format!(
        "(setsid bash -c 'exec -a {marker} sleep 30' &) ; exec -a {marker} bash -c 'kill -9 '$PPID'; sleep 30'"
    )));
        assert!(matches!(result, Err(ShellError::SessionEnded)), "{result:?}");
        assert_eq!(processes_with(&marker), Vec::<String>::new());
        assert!(matches!(session.attempt(request("true")), Err(ShellError::SessionEnded)));
    });
}

#[test]
fn a_session_that_is_dropped_leaves_nothing() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        let marker = marker("dropped");
        session.run(&format!("bash -c 'exec -a {marker} sleep 30' >/dev/null 2>&1 & disown"));
        wait_until("it runs", || processes_with(&marker).iter().any(|line| line.starts_with(&marker)));
        drop(session);
        assert_eq!(processes_with(&marker), Vec::<String>::new());
    });
}

/// Runs this test program again with only [`come_and_go`], because other tests also open descriptors.
#[test]
#[expect(clippy::disallowed_methods, reason = "what has descriptors of its own is a program")]
fn sessions_come_and_go_without_a_trace() {
    let alone = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "kills::come_and_go"])
        .env(ALONE_VARIABLE, "")
        .output()
        .unwrap();
    let stdout = String::from_utf8_lossy(&alone.stdout);
    assert!(alone.status.success() && stdout.contains("1 passed"), "{stdout}");
}

const ALONE_VARIABLE: &str = "PORTCULLIS_TEST_ALONE";

/// Starts and ends sessions. Does nothing unless the test above started this program.
#[test]
fn come_and_go() {
    if std::env::var_os(ALONE_VARIABLE).is_none() {
        return;
    }
    Fixture::for_each_posture(|fixture| {
        let descriptors = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = descriptors();
        for _ in 0..20 {
            let mut session = fixture.session();
            assert_eq!(session.output("echo on"), "on\n");
            session.0.end().unwrap();
        }
        assert_eq!(descriptors(), before);
    });
}

#[test]
fn impossible_mount_is_refused_before_any_start() {
    Fixture::for_each_posture(|fixture| {
        let mut spec = fixture.spec();
        spec.mounts[0].path = fixture.path("absent");
        assert!(matches!(ShellSession::start(&spec), Err(ShellError::MountOpen { .. })));
        for wide in ["/", "/home", "/root/", "/proc"] {
            spec.mounts[0].path = wide.into();
            let refused = ShellSession::start(&spec);
            assert!(matches!(refused, Err(ShellError::MountTooWide { .. })), "{wide}: {refused:?}");
        }
        // A mount that contains the state folder or is in it.
        for near in ["", "state"] {
            let mut spec = fixture.spec();
            spec.mounts[0].path = fixture.path(near);
            let refused = ShellSession::start(&spec);
            assert!(matches!(refused, Err(ShellError::MountTooWide { .. })), "{near}: {refused:?}");
        }
        let mut spec = fixture.spec();
        spec.home = "nowhere".to_owned();
        assert!(matches!(ShellSession::start(&spec), Err(ShellError::HomeUnknown { .. })));
        let mut spec = fixture.spec();
        spec.limits.descriptors = 10;
        assert!(matches!(ShellSession::start(&spec), Err(ShellError::LimitTooLow { .. })));
        let mut spec = fixture.spec();
        spec.launcher = "/bin/true".into();
        assert!(matches!(
            ShellSession::start(&spec),
            Err(ShellError::NotConfined { .. } | ShellError::Channel { .. })
        ));
    });
}

#[test]
fn a_command_cancelled_before_it_begins_keeps_the_session() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        for _ in 0..20 {
            let (command_request, canceller) = request("sleep 30");
            drop(canceller);
            let (_, unused_canceller) = request("");
            let result = session.attempt((command_request, unused_canceller)).unwrap();
            assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Cancelled));
            let result = session.attempt(request_with_timeout("sleep 30", Duration::ZERO)).unwrap();
            assert_eq!(result.end.completion, Completion::Interrupted(Interruption::Timeout));
        }
        assert_eq!(session.output("echo $v"), "1\n");
        let result = session.attempt(request_with_timeout("echo $v", Duration::MAX)).unwrap();
        assert_eq!(result.stdout, "1\n", "a time that no clock can show");
    });
}
