//! The confined process from which all commands of a session descend.

use std::{
    error::Error,
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::ExitCode,
    sync::Arc,
};

use portcullis_confine::{
    Canary, PathRule, ProcessConfinement, ProcessPosture, Requirement, SingleThreaded,
    confine_current_process,
    process::{Fork, fork},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, WaitOptions},
};

use super::{
    command::{self, Job},
    snapshot::Snapshots,
};
use crate::wire::{FromCommand, FromSession, Setup, ToSession, receive, send};

/// Confines itself, says so, and serves until the daemon is gone.
pub(super) fn run(control: OwnedFd, one_thread: &SingleThreaded) -> ExitCode {
    let Ok(Some((ToSession::Setup(setup), handles))) = receive(control.as_fd()) else {
        return ExitCode::FAILURE;
    };
    let answer = match confine(&setup, handles, one_thread) {
        Ok(posture) => FromSession::Ready { process: rustix::process::getpid().as_raw_pid(), posture },
        Err(error) => FromSession::Refused { reason: chain(&*error) },
    };
    let ready = matches!(answer, FromSession::Ready { .. });
    if send(control.as_fd(), &answer, &[]).is_err() || !ready {
        return ExitCode::FAILURE;
    }
    match serve(control, one_thread) {
        Ok(Role::Ended) => ExitCode::SUCCESS,
        Ok(Role::Command(job)) => command::run(job, &setup),
        Err(_) => ExitCode::FAILURE,
    }
}

/// What this process goes on as. On the command's side everything of the session has been closed by then.
enum Role {
    Ended,
    Command(Job),
}

fn serve(control: OwnedFd, one_thread: &SingleThreaded) -> io::Result<Role> {
    let mut snapshots = Snapshots::default();
    let mut commands: Vec<(Pid, OwnedFd)> = Vec::new();
    loop {
        let mut watched = vec![PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)];
        watched.extend(commands.iter().map(|(_, handle)| PollFd::new(handle, PollFlags::IN)));
        match poll(&mut watched, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let spoken = !watched[0].revents().is_empty();
        drop(watched);
        bury(&mut commands)?;
        if !spoken {
            continue;
        }
        let Some((ToSession::Prepare, handles)) = receive(control.as_fd())? else { return Ok(Role::Ended) };
        let job = Job::new(handles, snapshots.next()?)?;
        match fork(one_thread) {
            Ok(Fork::Child) => {
                drop((control, commands));
                return Ok(Role::Command(job));
            }
            Ok(Fork::Parent { child }) => {
                commands.push((child, rustix::process::pidfd_open(child, PidfdFlags::empty())?));
            }
            Err(error) => {
                let failed = FromCommand::Failed { reason: format!("double the session's process: {error}") };
                // A daemon that does not listen any more is noticed above.
                let _ = send(job.report.as_fd(), &failed, &[]);
            }
        }
    }
}

/// Buries command-inits that have ended. One that did not end in good order leaves orphans that nobody
/// accounts for: the session is over then.
fn bury(commands: &mut Vec<(Pid, OwnedFd)>) -> io::Result<()> {
    let mut killed = false;
    commands.retain(|(pid, _)| match rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG) {
        Ok(None) => true,
        Ok(Some((_, status))) => {
            killed |= status.exit_status() != Some(0);
            false
        }
        Err(_) => {
            killed = true;
            false
        }
    });
    if killed { Err(io::Error::other("a command-init was killed")) } else { Ok(()) }
}

fn confine(
    setup: &Setup,
    handles: Vec<OwnedFd>,
    one_thread: &SingleThreaded,
) -> Result<ProcessPosture, Box<dyn Error>> {
    let mut handles = handles.into_iter().map(Arc::new);
    let canary = Canary::from_state_dir(handles.next().ok_or("the canary is missing")?);
    let paths: Vec<PathRule> =
        handles.zip(&setup.accesses).map(|(handle, access)| PathRule { handle, access: *access }).collect();
    if paths.len() != setup.accesses.len() {
        return Err("a path is missing".into());
    }
    let rules = ProcessConfinement {
        landlock: Requirement::Required,
        seccomp: Requirement::Required,
        user: setup.user,
        paths,
        limits: setup.limits,
        canary,
    };
    // The handles end with this function: no command inherits one of them.
    Ok(confine_current_process(one_thread, &rules)?)
}

fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
