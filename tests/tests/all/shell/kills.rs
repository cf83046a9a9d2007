//! Killed commands and lost shells: a command that has run never runs again.

use std::{fs, path::Path};

use portcullis_testing::{Fixture, approving_caller, binary};
use portcullis_tools::audit::Outcome;
use portcullis_types::ToolErrorKind;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::json;

use super::{
    Shell,
    backends::{children_of, wait_until},
};

#[tokio::test]
async fn a_command_over_its_time_is_killed_but_not_the_session() {
    let shell = Shell::new().await;
    shell.text("v=kept").await;
    let answer = shell.call(json!({"command": "echo run >> runs; echo begun; sleep 60", "timeout": 1})).await;
    let message = answer.assert_refused(ToolErrorKind::Timeout, "timeout");
    assert!(message.contains("did not end within 1s") && message.ends_with("begun"), "{message}");
    assert_eq!(shell.text("cat runs; echo $v").await, "run\nkept\n");
    let too_long = shell.call(json!({"command": "echo run >> runs", "timeout": 100_000})).await;
    too_long.assert_refused(ToolErrorKind::InvalidArguments, "invalid_arguments");
    assert_eq!(shell.text("cat runs").await, "run\n");
}

#[tokio::test]
async fn a_cancelled_command_is_killed_with_all_that_it_started() {
    let shell = Shell::new().await;
    let caller = approving_caller();
    let cancel = caller.cancel.clone();
    let begun = shell.fixture.shared("begun");
    let command = "echo run >> runs; (setsid sleep 60 &); echo > begun; sleep 60";
    let call = shell.call_as(&caller, json!({ "command": command }));
    let stop = async {
        wait_until(|| begun.exists()).await;
        cancel.cancel();
    };
    let (answer, ()) = tokio::join!(call, stop);
    answer.assert_refused(ToolErrorKind::Cancelled, "cancelled");
    assert_eq!(shell.text("cat runs; pgrep -c sleep; true").await.lines().next(), Some("run"));
    assert_eq!(shell.last_row().outcome, Some(Outcome::Ok));
}

#[tokio::test]
async fn a_dropped_call_leaves_its_row_and_kills_its_command() {
    let shell = Shell::new().await;
    let begun = shell.fixture.shared("begun");
    let late = shell.fixture.shared("late");
    {
        let call = shell.run("echo > begun; until [ -e go ]; do sleep 0.01; done; echo > late");
        tokio::select! {
            answer = call => panic!("it ended: {answer:?}"),
            () = wait_until(|| begun.exists()) => {}
        }
    }
    // The session is free again after its command is killed.
    assert_eq!(shell.text("echo free").await, "free\n");
    shell.text("echo > go; sleep 0.2").await;
    assert!(!late.exists(), "the command went on");
    let codes: Vec<_> =
        shell.fixture.rows().iter().filter_map(|row| Some(row.code.as_deref()?.to_owned())).collect();
    assert_eq!(codes, ["caller_gone"]);
}

#[tokio::test]
async fn a_dying_sidecar_kills_its_commands_and_none_is_rerun() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: a sidecar shows only to root what it is, and others must live");
        return;
    }
    let shell = Shell::new().await;
    shell.text("v=1; echo $PPID > /dev/null").await;
    let begun = shell.fixture.shared("begun");
    let call = shell.run("echo run >> runs; echo > begun; sleep 60");
    let kill = async {
        wait_until(|| begun.exists()).await;
        for sidecar in sidecars(&shell.fixture) {
            kill_process(sidecar, Signal::KILL).expect("killed");
        }
    };
    let (answer, ()) = tokio::join!(call, kill);
    answer.assert_refused(ToolErrorKind::Unavailable, "shell_lost");
    // A new sidecar and a new session: the state is gone, and the command was not repeated.
    let answer = shell.run("cat runs; echo [$v]").await;
    assert_eq!(answer.text(), "run\n[]\n");
    assert_eq!(answer.0.details["session"]["new"], true);
    let outcomes: Vec<_> = shell.fixture.rows().into_iter().filter_map(|row| row.outcome).collect();
    assert_eq!(outcomes, [Outcome::Ok, Outcome::Error(ToolErrorKind::Unavailable), Outcome::Ok]);
}

/// Returns the sidecars of a fixture. Other tests of this process have sidecars too.
fn sidecars(fixture: &Fixture) -> Vec<Pid> {
    let (state, program) = (fixture.state(), binary());
    // A child of another test inherits this process's descriptors until its `exec`. Until then its executable
    // is still this test program.
    let is_started = |child: &Pid| {
        fs::read_link(format!("/proc/{}/exe", child.as_raw_pid())).is_ok_and(|path| path == program)
    };
    children_of(std::process::id())
        .into_iter()
        .filter(|child| is_started(child) && has_open_descriptor_below(*child, &state))
        .collect()
}

fn has_open_descriptor_below(process: Pid, folder: &Path) -> bool {
    let handles = fs::read_dir(format!("/proc/{}/fd", process.as_raw_pid()));
    handles
        .into_iter()
        .flatten()
        .flatten()
        .any(|handle| fs::read_link(handle.path()).is_ok_and(|target| target.starts_with(folder)))
}
