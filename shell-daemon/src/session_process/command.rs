//! The init of one command. It adopts the shell's orphans, reports how the shell ended, and ends after its last
//! descendant.

use std::{
    io,
    os::{
        fd::{AsFd as _, AsRawFd, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Command, ExitCode},
};

use portcullis_confine::process::{EndedChild, wait_for_any_child};
use rustix::{
    io::{Errno, FdFlags},
    process::{Pid, WaitOptions},
};

use super::{
    environment::SessionEnvironment,
    script::{ScriptDescriptors, script},
    snapshot::{CommandSnapshots, SnapshotState, snapshot_state},
};
use crate::wire::{Ending, FromCommand, ShellExit, StateOutcome, send};

#[derive(Debug)]
pub(super) struct CommandDescriptors {
    text: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    start_signal: OwnedFd,
    pub(super) report: OwnedFd,
    snapshots: CommandSnapshots,
}

impl CommandDescriptors {
    pub(super) fn new(handles: Vec<OwnedFd>, snapshots: CommandSnapshots) -> io::Result<Self> {
        let handles: Result<[OwnedFd; 6], _> = handles.try_into();
        let Ok([text, stdin, stdout, stderr, report, start_signal]) = handles else {
            return Err(io::Error::other("a command has six descriptors"));
        };
        Ok(Self { text, stdin, stdout, stderr, start_signal, report, snapshots })
    }
}

/// Runs a command's init until its last process has ended.
pub(super) fn run(job: CommandDescriptors, session: &SessionEnvironment) -> ExitCode {
    let prepared = rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)
        .and_then(|()| send(job.report.as_fd(), &FromCommand::Started, &[]));
    if prepared.is_err() {
        // The sidecar is gone, so there is no one to report to.
        return ExitCode::FAILURE;
    }
    let CommandDescriptors { text, stdin, stdout, stderr, start_signal, report, snapshots } = job;
    let CommandSnapshots { read, write } = snapshots;
    // `start_bash` closes this process's other handles: a pipe's reader sees its end only when the last writer is gone.
    match start_bash([stdin, stdout, stderr], [text, start_signal], read, &write, session) {
        Ok(shell) => match wait(shell, &report, &write) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
        Err(error) => {
            let failed = FromCommand::Failed { reason: format!("cannot start bash: {error}") };
            // Ignore an error: if the sidecar is gone, the guard will end this process too.
            let _ = send(report.as_fd(), &failed, &[]);
            ExitCode::SUCCESS
        }
    }
}

/// Waits for the shell, and then for all its orphans. The report's socket closes when this process ends.
fn wait(shell: Pid, report: &OwnedFd, snapshot: &OwnedFd) -> io::Result<()> {
    while let Some(ended) = wait_for_any_child()? {
        if ended.pid == shell {
            let end = FromCommand::Ended(shell_end(&ended, snapshot, jobs_left())?);
            // Ignore an error: if the sidecar is gone, the guard will end this process too.
            let _ = send(report.as_fd(), &end, &[]);
        }
    }
    Ok(())
}

fn shell_end(ended: &EndedChild, snapshot: &OwnedFd, jobs_left: bool) -> io::Result<ShellExit> {
    let ending = match (ended.status.code(), ended.status.signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => return Err(io::Error::other("the shell ended neither by itself nor by a signal")),
    };
    let state = match (snapshot_state(snapshot.as_fd())?, ending) {
        (SnapshotState::Complete, _) => StateOutcome::Carried,
        (SnapshotState::TooLarge, _) => StateOutcome::TooLarge,
        (SnapshotState::Unfinished, Ending::Signal(_)) => StateOutcome::Killed,
        (SnapshotState::Unfinished, Ending::Code(_)) => StateOutcome::NotWritten,
    };
    Ok(ShellExit { ending, cpu: ended.cpu, peak_memory_bytes: ended.peak_memory_bytes, state, jobs_left })
}

/// Whether processes of the shell are left. This reaps the processes that have ended in the meantime.
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
    [text, start_signal]: [OwnedFd; 2],
    state: Option<OwnedFd>,
    snapshot: &OwnedFd,
    session: &SessionEnvironment,
) -> io::Result<Pid> {
    // The snapshot is duplicated first, because it stays open in bash and must have the same number in every command.
    let snapshot = dup_inheritable(snapshot)?;
    let command = dup_inheritable(&text)?;
    let start_signal = dup_inheritable(&start_signal)?;
    let state = state.map(|state| dup_inheritable(&state)).transpose()?;
    let descriptors = ScriptDescriptors {
        command: command.as_raw_fd(),
        start_signal: start_signal.as_raw_fd(),
        state: state.as_ref().map(AsRawFd::as_raw_fd),
        snapshot: snapshot.as_raw_fd(),
    };
    let child = Command::new("/bin/bash")
        .arg0("bash")
        .args(["--noprofile", "--norc", "-c", &script(descriptors), "bash"])
        .env_clear()
        .envs(session.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&session.home)
        .stdin(stdin)
        .stdout(stdout)
        .stderr(stderr)
        // With a new process group, `kill 0` does not reach the session's own processes. All these settings still
        // allow `posix_spawn`, which does not copy this process's memory.
        .process_group(0)
        .spawn()?;
    i32::try_from(child.id()).ok().and_then(Pid::from_raw).ok_or_else(|| io::Error::other("no number"))
}

/// Makes a copy that bash inherits, with a number above the numbers that scripts use.
fn dup_inheritable(handle: &OwnedFd) -> io::Result<OwnedFd> {
    let copy = rustix::io::fcntl_dupfd_cloexec(handle, FIRST_DESCRIPTOR)?;
    rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy)
}

const FIRST_DESCRIPTOR: i32 = 200;
