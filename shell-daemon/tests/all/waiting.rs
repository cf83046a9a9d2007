//! The shell that waits for the next command: a command cannot tell that its shell was there before.

use std::{fs, os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use portcullis_shell_daemon::{Completion, Ending, Interruption, ShellError, StateAfter};
use rustix::process::{Pid, Signal, kill_process};

use crate::world::{World, eventually, request, with_timeout};

/// The processes called `name` whose folder is the home of this world's session.
fn at_home(world: &World, name: &str) -> Vec<Pid> {
    // Compared by identity, since a session may have another path for it.
    let identity = |path: &Path| fs::metadata(path).map(|data| (data.dev(), data.ino())).ok();
    let home = identity(&world.path("shared"));
    let mut found = Vec::new();
    for folder in fs::read_dir("/proc").expect("there").flatten() {
        let is_named = fs::read_to_string(folder.path().join("comm")).is_ok_and(|comm| comm.trim() == name);
        if is_named && identity(&folder.path().join("cwd")) == home {
            let pid = folder.file_name().to_str().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
            found.extend(pid);
        }
    }
    found
}

fn the_waiting(world: &World) -> Pid {
    let mut found = Vec::new();
    eventually("one shell waits", || {
        found = at_home(world, "bash");
        found.len() == 1
    });
    found[0]
}

#[test]
fn a_waiting_shell_that_was_killed_is_replaced() {
    World::each(|world| {
        let mut session = world.session();
        session.output("v=1");
        for signal in [Signal::KILL, Signal::TERM, Signal::KILL] {
            let waiting = the_waiting(world);
            // The session may or may not have noticed the kill when the command comes.
            kill_process(waiting, signal).expect("there");
            let ran = session.run("echo x >> ran; echo $v");
            assert_eq!((ran.stdout.as_str(), ran.end.state), ("1\n", StateAfter::Saved), "{signal:?}");
        }
        assert_eq!(
            fs::read_to_string(world.path("shared/ran")).expect("written"),
            "x\nx\nx\n",
            "each ran once"
        );
    });
}

#[test]
fn a_stopped_waiting_shell_ends_at_the_deadline_and_is_replaced() {
    World::each(|world| {
        let mut session = world.session();
        session.output("v=1");
        kill_process(the_waiting(world), Signal::STOP).expect("there");
        let ran = session.attempt(with_timeout("echo never", Duration::from_millis(200))).expect("it lives");
        assert_eq!(
            (ran.end.completion, ran.stdout.as_str()),
            (Completion::Interrupted(Interruption::Timeout), "")
        );
        assert_eq!(session.output("echo $v"), "1\n");
    });
}

#[test]
fn a_waiting_shell_ends_with_its_session() {
    World::each(|world| {
        let mut session = world.session();
        session.output("v=1");
        the_waiting(world);
        session.0.end().expect("all gone");
        assert!(at_home(world, "bash").is_empty());
    });
}

/// Only in a process namespace: elsewhere a bug of ours would kill all processes of this user.
#[test]
fn a_job_that_kills_all_it_can_ends_the_session() {
    World::strong().iter().for_each(|world| {
        let mut session = world.session();
        session.run("(until [[ -e go ]]; do sleep 0.01; done; kill -9 -1) &");
        fs::write(world.path("shared/go"), "").expect("writable");
        eventually("the session has ended", || {
            matches!(session.attempt(request("true")), Err(ShellError::SessionEnded))
        });
        assert!(at_home(world, "bash").is_empty());
    });
}

#[test]
fn the_folder_is_entered_when_the_command_begins() {
    World::each(|world| {
        let mut session = world.session();
        session.output("mkdir d; cd d");
        the_waiting(world);
        let folder = world.path("shared/d");
        fs::rename(&folder, world.path("shared/old")).expect("movable");
        fs::create_dir(&folder).expect("a folder");
        session.output("pwd -P; touch here");
        assert!(folder.join("here").exists(), "in the folder that has the name now");
        let back = world.inside("shared").display().to_string();
        assert_eq!(session.output("cd ..; cd d; cd -"), format!("{back}\n"));
        assert_eq!(
            session.output("cd - > /dev/null; cd -"),
            format!("{back}\n"),
            "the last folder carries over"
        );
    });
}

#[test]
fn the_clock_starts_with_the_command() {
    /// Far longer than a short command takes on any machine.
    const WAIT: Duration = Duration::from_secs(5);
    World::each(|world| {
        let mut session = world.session();
        session.output("v=1");
        the_waiting(world);
        std::thread::sleep(WAIT);
        let ran = session.run("echo $SECONDS");
        let seconds: u64 = ran.stdout.trim().parse().expect("a number");
        assert!(seconds < WAIT.as_secs() && ran.end.duration < WAIT, "{ran:?}");
    });
}

#[test]
fn the_state_before_a_kill_is_what_the_next_shell_waits_with() {
    World::each(|world| {
        let mut session = world.session();
        for round in 0..10 {
            session.output(&format!("v={round}"));
            let ran =
                session.attempt(with_timeout("v=bad; sleep 30", Duration::from_millis(20))).expect("lives");
            assert_eq!(ran.end.ending, Ending::Signal(9));
            assert_eq!(session.output("echo $v"), format!("{round}\n"));
        }
    });
}
