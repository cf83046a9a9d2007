//! The session-init: the confined process that is the ancestor of all commands of a session.

use std::{
    io,
    os::fd::{AsFd as _, BorrowedFd, OwnedFd},
    process::ExitCode,
};

use portcullis_confine::{
    LayerReport, Namespaces, SingleThreaded,
    process::{ForkSide, fork},
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    process::{Pid, PidfdFlags, WaitOptions},
};

use super::{
    command::{self, CommandDescriptors},
    confine::confine,
    environment::SessionEnvironment,
    snapshot::Snapshots,
};
use crate::wire::{FromCommand, FromSession, SessionReady, SessionSetup, ToSession, receive, send};

/// Confines this process, reports the result, and serves until the sidecar is gone.
pub(super) fn run(
    control: OwnedFd,
    setup: &SessionSetup,
    handles: Vec<OwnedFd>,
    namespaces: Namespaces,
    group: LayerReport,
    one_thread: &SingleThreaded,
) -> ExitCode {
    // Commands get less weight than other programs and than the sidecar, which must watch them. Every process may raise
    // its niceness, and a confined one cannot lower it again.
    let _ = rustix::process::nice(NICENESS);
    let (answer, listeners) = confine(setup, handles, namespaces, group, one_thread);
    let handles: Vec<BorrowedFd<'_>> = listeners.iter().map(|listener| listener.as_fd()).collect();
    if send(control.as_fd(), &answer, &handles).is_err() {
        return ExitCode::FAILURE;
    }
    // Only the sidecar may use the listeners.
    drop(handles);
    drop(listeners);
    let FromSession::Ready(SessionReady { has_tree, network, .. }) = answer else { return ExitCode::FAILURE };
    let session = SessionEnvironment::new(setup, has_tree, matches!(network, Some(Ok(()))));
    match serve(control, one_thread) {
        Ok(ProcessRole::Ended) => ExitCode::SUCCESS,
        Ok(ProcessRole::Command(job)) => command::run(job, &session),
        Err(_) => ExitCode::FAILURE,
    }
}

/// The next role of this process. A forked child becomes a command-init, in which all descriptors of the session are
/// closed.
enum ProcessRole {
    Ended,
    Command(CommandDescriptors),
}

fn serve(control: OwnedFd, one_thread: &SingleThreaded) -> io::Result<ProcessRole> {
    let mut snapshots = Snapshots::default();
    let mut commands: Vec<(Pid, OwnedFd)> = Vec::new();
    loop {
        let mut poll_fds = vec![PollFd::from_borrowed_fd(control.as_fd(), PollFlags::IN)];
        poll_fds.extend(commands.iter().map(|(_, handle)| PollFd::new(handle, PollFlags::IN)));
        match poll(&mut poll_fds, None) {
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
        let has_message = !poll_fds[0].revents().is_empty();
        drop(poll_fds);
        reap_command_inits(&mut commands)?;
        if !has_message {
            continue;
        }
        let Some((ToSession::Prepare, mut handles)) = receive(control.as_fd())? else {
            return Ok(ProcessRole::Ended);
        };
        let state = handles.pop().ok_or_else(|| io::Error::other("the file for the state is missing"))?;
        let job = CommandDescriptors::new(handles, snapshots.next(state)?)?;
        match fork(one_thread) {
            Ok(ForkSide::Child) => {
                drop((control, commands));
                return Ok(ProcessRole::Command(job));
            }
            Ok(ForkSide::Parent { child }) => {
                commands.push((child, rustix::process::pidfd_open(child, PidfdFlags::empty())?));
            }
            Err(error) => {
                let failed = FromCommand::Failed { reason: format!("double the session's process: {error}") };
                // Ignore an error: a sidecar that is gone is noticed at the loop's `receive`.
                let _ = send(job.report.as_fd(), &failed, &[]);
            }
        }
    }
}

/// Reaps command-inits that have ended. A killed command-init leaves orphans that no init accounts for, so the session
/// then ends.
fn reap_command_inits(commands: &mut Vec<(Pid, OwnedFd)>) -> io::Result<()> {
    let mut killed = false;
    commands.retain(|(pid, _)| match rustix::process::waitpid(Some(*pid), WaitOptions::NOHANG) {
        Ok(None) => true,
        Ok(Some((_, status))) => {
            killed |= status.exit_status() != Some(0);
            false
        }
        // The end is unknown, so treat the command-init as killed.
        Err(_) => {
            killed = true;
            false
        }
    });
    if killed { Err(io::Error::other("a command-init was killed")) } else { Ok(()) }
}

/// The niceness of commands, which gives them about a third of the usual weight.
pub(super) const NICENESS: i32 = 5;
