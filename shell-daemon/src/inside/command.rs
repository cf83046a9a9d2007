//! The process above one command's shell: adopts what the shell leaves, reports how the shell ended, and ends
//! after the last of them.

use std::{
    io,
    os::{
        fd::{AsFd as _, IntoRawFd as _, OwnedFd},
        unix::process::{CommandExt as _, ExitStatusExt as _},
    },
    process::{Command, ExitCode},
};

use portcullis_confine::{
    SingleThreaded,
    process::{Ended, Fork, fork, wait_for_any},
};
use rustix::{
    io::{Errno, FdFlags},
    process::WaitOptions,
};

use super::{
    place::Place,
    script::{Descriptors, script},
    snapshot::{CommandSnapshots, Extent, extent},
};
use crate::wire::{Ending, FromCommand, ShellEnd, StateAfter, send};

/// One command, as descriptors.
#[derive(Debug)]
pub(super) struct Job {
    text: OwnedFd,
    stdin: OwnedFd,
    stdout: OwnedFd,
    stderr: OwnedFd,
    go: OwnedFd,
    pub(super) report: OwnedFd,
    snapshots: CommandSnapshots,
}

impl Job {
    pub(super) fn new(handles: Vec<OwnedFd>, snapshots: CommandSnapshots) -> io::Result<Self> {
        let handles: Result<[OwnedFd; 6], _> = handles.try_into();
        let Ok([text, stdin, stdout, stderr, go, report]) = handles else {
            return Err(io::Error::other("a command has six descriptors"));
        };
        Ok(Self { text, stdin, stdout, stderr, go, report, snapshots })
    }
}

/// The whole life of a command-init, and in its child that of the shell until it is bash.
pub(super) fn run(job: Job, place: &Place, one_thread: &SingleThreaded) -> ExitCode {
    let prepared = rustix::process::set_child_subreaper(Some(rustix::process::getpid()))
        .map_err(io::Error::from)
        .and_then(|()| send(job.report.as_fd(), &FromCommand::Started, &[]))
        .and_then(|()| fork(one_thread));
    match prepared {
        Ok(Fork::Child) => {
            let error = become_bash(&job, place);
            let failed = FromCommand::Failed { reason: format!("start bash: {error}") };
            let _ = send(job.report.as_fd(), &failed, &[]);
            ExitCode::FAILURE
        }
        Ok(Fork::Parent { child }) => {
            let Job { text, stdin, stdout, stderr, go, report, snapshots } = job;
            // Nobody but the command holds them, so that each side learns when the other is done.
            drop((text, stdin, stdout, stderr, go, snapshots.read));
            match wait(child, &report, &snapshots.write) {
                Ok(()) => ExitCode::SUCCESS,
                Err(_) => ExitCode::FAILURE,
            }
        }
        Err(error) => {
            let failed = FromCommand::Failed { reason: format!("double a command's process: {error}") };
            let _ = send(job.report.as_fd(), &failed, &[]);
            ExitCode::SUCCESS
        }
    }
}

/// Waits for the shell, and then for everything that it left. The report's socket ends with this process.
fn wait(shell: rustix::process::Pid, report: &OwnedFd, snapshot: &OwnedFd) -> io::Result<()> {
    while let Some(ended) = wait_for_any()? {
        if ended.pid == shell {
            let end = FromCommand::Ended(end(&ended, snapshot, jobs_left())?);
            // If the daemon is gone, the guard is about to end this as well.
            let _ = send(report.as_fd(), &end, &[]);
        }
    }
    Ok(())
}

fn end(ended: &Ended, snapshot: &OwnedFd, jobs_left: bool) -> io::Result<ShellEnd> {
    let ending = match (ended.status.code(), ended.status.signal()) {
        (Some(code), _) => Ending::Code(code),
        (None, Some(signal)) => Ending::Signal(signal),
        (None, None) => return Err(io::Error::other("the shell ended neither by itself nor by a signal")),
    };
    let state = match (extent(snapshot.as_fd())?, ending) {
        (Extent::Whole, _) => StateAfter::Saved,
        (Extent::TooLarge, _) => StateAfter::KeptTooLarge,
        (Extent::Unfinished, Ending::Signal(_)) => StateAfter::KeptAfterKill,
        (Extent::Unfinished, Ending::Code(_)) => StateAfter::KeptNotWritten,
    };
    Ok(ShellEnd { ending, cpu: ended.cpu, peak_memory_bytes: ended.peak_memory_bytes, state, jobs_left })
}

/// Whether anything is left of what the shell started. Buries what has ended in the meantime.
fn jobs_left() -> bool {
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some(_)) | Err(Errno::INTR) => {}
            Ok(None) => return true,
            Err(_) => return false,
        }
    }
}

/// Does not come back but with an error.
#[expect(clippy::disallowed_methods, reason = "starting the shell is what this process is for")]
fn become_bash(job: &Job, place: &Place) -> io::Error {
    let prepare = || -> io::Result<Descriptors> {
        // Neither `kill 0` nor a terminal's signals reach the processes above.
        rustix::process::setsid()?;
        rustix::stdio::dup2_stdin(&job.stdin)?;
        rustix::stdio::dup2_stdout(&job.stdout)?;
        rustix::stdio::dup2_stderr(&job.stderr)?;
        // The first is the one that stays: it has the same number in every command.
        let snapshot = keep(&job.snapshots.write)?;
        Ok(Descriptors {
            command: keep(&job.text)?,
            go: keep(&job.go)?,
            state: job.snapshots.read.as_ref().map(keep).transpose()?,
            snapshot,
        })
    };
    let descriptors = match prepare() {
        Ok(descriptors) => descriptors,
        Err(error) => return error,
    };
    Command::new("/bin/bash")
        .arg0("bash")
        .args(["--noprofile", "--norc", "-c", &script(descriptors), "bash"])
        .env_clear()
        .envs(place.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(&place.home)
        .exec()
}

/// Lets a copy of the descriptor through to bash, above those that scripts use by number. The copy is never
/// closed here: this process becomes bash, or ends.
fn keep(handle: &OwnedFd) -> io::Result<i32> {
    let copy = rustix::io::fcntl_dupfd_cloexec(handle, FIRST_DESCRIPTOR)?;
    rustix::io::fcntl_setfd(&copy, FdFlags::empty())?;
    Ok(copy.into_raw_fd())
}

const FIRST_DESCRIPTOR: i32 = 200;
