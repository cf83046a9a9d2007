//! Tests that the shell that is prepared for the next command behaves like a new one.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use portcullis_shell_daemon::{Completion, Ending, Interruption, ShellError, StateOutcome};
use rustix::process::{Pid, Signal, kill_process};

use crate::fixture::{Fixture, request, request_with_timeout, wait_until};

/// The processes called `name` whose folder is the home of this fixture's session.
fn processes_at_home(fixture: &Fixture, name: &str) -> Vec<Pid> {
    // Compare the folder's identity, because a session may have another path for the folder.
    let identity = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    let home = identity(&fixture.path("shared"));
    let mut pids = Vec::new();
    for folder in fs::read_dir("/proc").expect("the folder is readable").flatten() {
        let is_named = fs::read_to_string(folder.path().join("comm")).is_ok_and(|comm| comm.trim() == name);
        if is_named && identity(&folder.path().join("cwd")) == home {
            let pid = folder.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            pids.extend(pid);
        }
    }
    pids
}

fn prepared_shell(fixture: &Fixture) -> Pid {
    let mut shells = Vec::new();
    wait_until("one shell waits", || {
        shells = processes_at_home(fixture, "bash");
        shells.len() == 1
    });
    shells[0]
}

#[test]
fn a_waiting_shell_that_was_killed_is_replaced() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        for signal in [Signal::KILL, Signal::TERM, Signal::KILL] {
            let waiting = prepared_shell(fixture);
            // The session may or may not have noticed the kill when the command comes.
            kill_process(waiting, signal).expect("the process lives");
            let result = session.run("echo x >> ran; echo $v");
            assert_eq!(
                (result.stdout.as_str(), result.end.state),
                ("1\n", StateOutcome::Carried),
                "{signal:?}"
            );
        }
        assert_eq!(
            fs::read_to_string(fixture.path("shared/ran")).expect("written"),
            "x\nx\nx\n",
            "each ran once"
        );
    });
}

#[test]
fn a_stopped_waiting_shell_ends_at_the_deadline_and_is_replaced() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        kill_process(prepared_shell(fixture), Signal::STOP).expect("the process lives");
        let result = session
            .attempt(request_with_timeout("echo never", Duration::from_millis(200)))
            .expect("it lives");
        assert_eq!(
            (result.end.completion, result.stdout.as_str()),
            (Completion::Interrupted(Interruption::Timeout), "")
        );
        assert_eq!(session.output("echo $v"), "1\n");
    });
}

#[test]
fn a_waiting_shell_ends_with_its_session() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        prepared_shell(fixture);
        session.0.end().expect("all gone");
        assert!(processes_at_home(fixture, "bash").is_empty());
    });
}

/// This runs only in a process namespace: elsewhere a bug would kill all processes of this user.
#[test]
fn a_job_that_kills_all_it_can_ends_the_session() {
    Fixture::strong().iter().for_each(|fixture| {
        let mut session = fixture.session();
        session.run("(until [[ -e go ]]; do sleep 0.01; done; kill -9 -1) &");
        fs::write(fixture.path("shared/go"), "").expect("writable");
        wait_until("the session has ended", || {
            matches!(session.attempt(request("true")), Err(ShellError::SessionEnded))
        });
        assert!(processes_at_home(fixture, "bash").is_empty());
    });
}

#[test]
fn the_folder_is_entered_when_the_command_begins() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("mkdir d; cd d");
        prepared_shell(fixture);
        let folder = fixture.path("shared/d");
        fs::rename(&folder, fixture.path("shared/old")).expect("movable");
        fs::create_dir(&folder).expect("a folder");
        session.output("pwd -P; touch here");
        assert!(folder.join("here").exists(), "in the folder that has the name now");
        let shared_folder = fixture.inside("shared").display().to_string();
        assert_eq!(session.output("cd ..; cd d; cd -"), format!("{shared_folder}\n"));
        assert_eq!(
            session.output("cd - > /dev/null; cd -"),
            format!("{shared_folder}\n"),
            "the last folder carries over"
        );
    });
}

#[test]
fn the_clock_starts_with_the_command() {
    /// A wait that is far longer than a short command takes on any machine.
    const WAIT: Duration = Duration::from_secs(5);
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        session.output("v=1");
        prepared_shell(fixture);
        std::thread::sleep(WAIT);
        let result = session.run("echo $SECONDS");
        let seconds: u64 = result.stdout.trim().parse().expect("a number");
        assert!(seconds < WAIT.as_secs() && result.end.duration < WAIT, "{result:?}");
    });
}

#[test]
fn the_state_before_a_kill_is_what_the_next_shell_waits_with() {
    Fixture::for_each_posture(|fixture| {
        let mut session = fixture.session();
        for round in 0..10 {
            session.output(&format!("v={round}"));
            let result = session
                .attempt(request_with_timeout("v=bad; sleep 30", Duration::from_millis(20)))
                .expect("lives");
            assert_eq!(result.end.ending, Ending::Signal(9));
            assert_eq!(session.output("echo $v"), format!("{round}\n"));
        }
    });
}
