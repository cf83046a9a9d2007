//! The first process of a session: starts the confined one and, when that or the daemon is gone, kills all.
//!
//! It is not confined, since it must see the processes that it kills; it reads nothing that they wrote. Lives
//! hang on the end of the control socket: the kernel closes it however the daemon ends.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::ExitCode,
};

use portcullis_confine::{
    ConfineError, Layer, LayerReport, LayerStatus, Namespaces, SingleThreaded,
    process::{Fork, close_inherited, fork},
    prove_group,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    process::{Pid, PidfdFlags, Signal, WaitOptions},
};

use super::{
    confine::refused,
    session_init::{self, NICENESS},
};
use crate::{
    ShellError,
    limits::KILL_TIME,
    tree,
    wire::{Plan, Setup, ToSession, receive, send},
};

/// The whole life of a session's process.
pub(crate) fn run() -> ExitCode {
    let Ok(one_thread) = SingleThreaded::check() else { return ExitCode::FAILURE };
    let Ok(control) = prepare(&one_thread) else { return ExitCode::FAILURE };
    let Ok(Some((ToSession::Setup(setup), mut handles))) = receive(control.as_fd()) else {
        return ExitCode::FAILURE;
    };
    // First: in a process namespace, this process has no second child.
    let group = match &setup.group {
        Ok(proof) => handles.pop().map(|bound| prove_group(&one_thread, bound, proof.clone())),
        Err(status) => {
            Some(LayerReport { layer: Layer::Cgroup, status: status.clone(), evidence: Vec::new() })
        }
    };
    let Some(group) = group else { return ExitCode::FAILURE };
    let namespaces = match prepare_namespaces(&setup, &one_thread) {
        Ok(namespaces) => namespaces,
        Err(error) => {
            let _ = send(control.as_fd(), &refused(&error, true), &[]);
            // Nothing was started that would have to be killed.
            return ExitCode::SUCCESS;
        }
    };
    match fork(&one_thread) {
        Ok(Fork::Child) => session_init::run(control, &setup, handles, namespaces, group, &one_thread),
        Ok(Fork::Parent { child }) => {
            let end = if namespaces.has_processes() { End::ByKernel } else { End::ByLooks };
            drop((setup, handles, namespaces, group));
            guard(&control, child, end)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Whoever is to be the first in a process namespace has to be started by somebody who is not in it.
fn prepare_namespaces(setup: &Setup, one_thread: &SingleThreaded) -> Result<Namespaces, ConfineError> {
    match &setup.plan {
        Plan::Nothing => Ok(Namespaces::none(&LayerStatus::Waived)),
        Plan::Layers { without_namespaces: Some(status), .. } => Ok(Namespaces::none(status)),
        Plan::Layers { waived, without_namespaces: None } => {
            Namespaces::prepare(one_thread, waived, setup.user, setup.apart)
        }
    }
}

/// Takes the control socket off the standard input, and leaves nothing else of what was inherited.
fn prepare(one_thread: &SingleThreaded) -> io::Result<OwnedFd> {
    close_inherited(one_thread)?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // Away from the daemon's terminal and its process group. Fails for a leader, which is away already.
    let _ = rustix::process::setsid();
    // Where the kernel schedules each terminal session as one, this is the session's weight, and that of its processes
    // among each other counts beside it.
    let _ = std::fs::write("/proc/self/autogroup", NICENESS.to_string());
    // Even what outlives a command-init stays below this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(control)
}

/// How all that a session has started comes to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    /// With the first process of its namespace.
    ByKernel,
    /// One after the other, until none is found.
    ByLooks,
}

fn guard(control: &OwnedFd, session_init: Pid, end: End) -> ExitCode {
    let Ok(handle) = rustix::process::pidfd_open(session_init, PidfdFlags::empty()) else {
        return ExitCode::FAILURE;
    };
    let mut watched =
        [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::empty()), PollFd::new(&handle, PollFlags::IN)];
    // Only a hang-up is looked for on the control socket; messages are the session-init's.
    while matches!(poll(&mut watched, None), Err(rustix::io::Errno::INTR)) {}
    if end == End::ByKernel && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok() {
        // It is gone only when all others are. What is looked for below is then nothing, as a rule.
        let _ =
            rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(session_init), WaitOptions::empty()));
    }
    let Some(guard) = tree::Process::current() else { return ExitCode::FAILURE };
    loop {
        let killed = tree::kill_below(guard, KILL_TIME);
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        match killed {
            Ok(()) => return ExitCode::SUCCESS,
            // Nothing has become less for a while. To give up would be to let them go for good.
            Err(ShellError::NotKilled { .. }) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
