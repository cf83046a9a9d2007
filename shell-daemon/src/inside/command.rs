//! The init of one command: adopts the shell's orphans, reports how the shell ended, and ends after the last
//! of them.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Command, ExitCode},
};

use portcullis_confine::process::{EndedChild, wait_for_any};
use rustix::{
    io::{Errno, FdFlags},
    process::{Pid, WaitOptions},
};

use super::{
    environment::SessionEnvironment,
    script::{ScriptDescriptors, script},
    snapshot::{CommandSnapshots, SnapshotState, snapshot_state},
};
use crate::wire::{Ending, FromCommand, ShellEnd, StateAfter, send};

/// One command, as descriptors.
#[derive(Debug)]
pub(super) struct CommandDescriptors {
    text: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    go: OwnedFd,
    pub(super) report: OwnedFd,
    snapshots: CommandSnapshots,
}

impl CommandDescriptors {
    pub(super) fn new(handles: Vec<OwnedFd>, snapshots: CommandSnapshots) -> io::Result<Self> {
        let handles: Result<[OwnedFd; 6], _> = handles.try_into();
        let Ok([text, stdin, stdout, stderr, report, go]) = handles else {
            return Err(io::Error::other("a command has six descriptors"));
        };
        Ok(Self { text, stdin, stdout, stderr, go, report, snapshots })
    }
}

/// Runs a command's init until its last process has ended.
pub(super) fn run(job: CommandDescriptors, place: &SessionEnvironment) -> ExitCode {
    let prepared = rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)
        .and_then(|()| send(job.report.as_fd(), &FromCommand::Started, &[]));
    if prepared.is_err() {
        // The daemon is gone, so there is no one to report to.
        return ExitCode::FAILURE;
    }
    let CommandDescriptors { text, stdin, stdout, stderr, go, report, snapshots } = job;
    let CommandSnapshots { read, write } = snapshots;
    // All but two of the handles are closed by then, so that each side of a pipe learns when the other is
    // done.
    match start_bash([stdin, stdout, stderr], [text, go], read, &write, place) {
        Ok(shell) => match wait(shell, &report, &write) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            let failed = FromCommand::Failed { reason: format!("start bash: {error}") };
            // An error is ignored: if the daemon is gone, the guard is about to end this process too.
            let _ = send(report.as_fd(), &failed, &[]);
            ExitCode::SUCCESS
        }
    }
}

/// Waits for the shell, and then for all its orphans. The report's socket closes when this process ends.
fn wait(shell: Pid, report: &OwnedFd, snapshot: &OwnedFd) -> io::Result<()> {
    while let Some(ended) = wait_for_any()? {
        if ended.pid == shell {
            let end = FromCommand::Ended(end(&ended, snapshot, jobs_left())?);
            // An error is ignored: if the daemon is gone, the guard is about to end this process too.
            let _ = send(report.as_fd(), &end, &[]);
        }
    }
    Ok(())
}

fn end(ended: &EndedChild, snapshot: &OwnedFd, jobs_left: bool) -> io::Result<ShellEnd> {
    let ending = match (ended.status.code(), ended.status.signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => return Err(io::Error::other("the shell ended neither by itself nor by a signal")),
    };
    let state = match (snapshot_state(snapshot.as_fd())?, ending) {
        (SnapshotState::Whole, _) => StateAfter::Saved,
        (SnapshotState::TooLarge, _) => StateAfter::KeptTooLarge,
        (SnapshotState::Unfinished, Ending::Signal(_)) => StateAfter::KeptAfterKill,
        (SnapshotState::Unfinished, Ending::Code(_)) => StateAfter::KeptNotWritten,
    };
    Ok(ShellEnd { ending, cpu: ended.cpu, peak_memory_bytes: ended.peak_memory_bytes, state, jobs_left })
}

/// Whether processes of the shell are left. Reaps those that have ended meanwhile.
fn jobs_left() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "starting the shell is what this process is for")]
fn start_bash(
    [stdin, stdout, stderr]: [OwnedFd; 3],
    [text, go]: [OwnedFd; 2],
    state: Option<OwnedFd>,
    snapshot: &OwnedFd,
    place: &SessionEnvironment,
) -> io::Result<Pid> {
    // First, because it stays open in bash: so it has the same number in every command.
    let snapshot = dup_inheritable(snapshot)?;
    let command = dup_inheritable(&text)?;
    let go = dup_inheritable(&go)?;
    let state = state.map(|state| dup_inheritable(&state)).transpose()?;
    let descriptors = ScriptDescriptors {
        command: command.as_raw_fd(),
        go: go.as_raw_fd(),
        state: state.as_ref().map(AsRawFd::as_raw_fd),
        snapshot: snapshot.as_raw_fd(),
    };
    let child = Command::new("/bin/bash")
        .arg0("bash")
        .args(["--noprofile", "--norc", "-c", &script(descriptors), "bash"])
        .env_clear()
        .envs(place.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&place.home)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        // A new process group, so that `kill 0` does not reach the processes above. Nothing set here keeps
        // the kernel from starting bash by `vfork`, without a copy of this process.
        .process_group(0)
        .spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no number"))
}

/// A copy that bash inherits, with a number above those that scripts use.
fn dup_inheritable(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(handle, FIRST_DESCRIPTOR)?;
    rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

const FIRST_DESCRIPTOR: i32 = 200;
