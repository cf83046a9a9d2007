//! The guard, the first process of a session: starts the confined process, and kills everything when that
//! process or the daemon is gone.
//!
//! It is not confined, because it must see the processes that it kills; it reads nothing that they wrote. It
//! watches for the control socket's end: the kernel closes the socket however the daemon ends.

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
    wire::{LayerPlan, SessionSetup, ToSession, receive, send},
};

/// Runs a session's process until its end.
pub(crate) fn run() -> ExitCode {
    let Ok(one_thread) = SingleThreaded::check() else { return ExitCode::FAILURE };
    let Ok(control) = prepare(&one_thread) else { return ExitCode::FAILURE };
    let Ok(Some((ToSession::Setup(setup), mut handles))) = receive(control.as_fd()) else {
        return ExitCode::FAILURE;
    };
    // First, since in a process namespace this process can have no second child.
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
            // An error is ignored: without a daemon there is no one to refuse.
            let _ = send(control.as_fd(), &refused(&error, true), &[]);
            // No process was started, so nothing has to be killed.
            return ExitCode::SUCCESS;
        }
    };
    match fork(&one_thread) {
        Ok(Fork::Child) => session_init::run(control, &setup, handles, namespaces, group, &one_thread),
        Ok(Fork::Parent { child }) => {
            let end = if namespaces.has_processes() { KillMethod::ByKernel } else { KillMethod::ByLooks };
            drop((setup, handles, namespaces, group));
            guard(&control, child, end)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prepares the namespaces. The first process of a process namespace must be started by a process outside it.
fn prepare_namespaces(setup: &SessionSetup, one_thread: &SingleThreaded) -> Result<Namespaces, ConfineError> {
    match &setup.plan {
        LayerPlan::Nothing => Ok(Namespaces::none(&LayerStatus::Waived)),
        LayerPlan::Layers { without_namespaces: Some(status), .. } => Ok(Namespaces::none(status)),
        LayerPlan::Layers { waived, without_namespaces: None } => {
            Namespaces::prepare(one_thread, waived, setup.user, setup.apart)
        }
    }
}

/// Moves the control socket away from standard input, and closes all other inherited descriptors.
fn prepare(one_thread: &SingleThreaded) -> io::Result<OwnedFd> {
    close_inherited(one_thread)?;
    let control = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3)?;
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    // Leave the daemon's terminal and process group. Fails for a group leader, which has left them already.
    let _ = rustix::process::setsid();
    // Where the kernel schedules each terminal session as one group, this sets the weight of the whole
    // session; the niceness of its processes counts among them only.
    let _ = std::fs::write("/proc/self/autogroup", NICENESS.to_string());
    // Adopt orphans even of a killed command-init, so that they stay below this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(control)
}

/// How all processes of a session are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillMethod {
    /// By the kernel, which kills a process namespace with its first process.
    ByKernel,
    /// By killing one after the other until a look finds none.
    ByLooks,
}

fn guard(control: &OwnedFd, session_init: Pid, end: KillMethod) -> ExitCode {
    let Ok(handle) = rustix::process::pidfd_open(session_init, PidfdFlags::empty()) else {
        return ExitCode::FAILURE;
    };
    let mut watched =
        [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::empty()), PollFd::new(&handle, PollFlags::IN)];
    // Poll the control socket for a hang-up only; its messages are for the session-init.
    while matches!(poll(&mut watched, None), Err(rustix::io::Errno::INTR)) {}
    if end == KillMethod::ByKernel && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok() {
        // The wait returns after all others of the namespace are gone, so the loop below usually finds none.
        let _ =
            rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(session_init), WaitOptions::empty()));
    }
    let Some(guard) = tree::Process::current() else { return ExitCode::FAILURE };
    loop {
        let killed = tree::kill_below(guard, KILL_TIME);
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        match killed {
            Ok(()) => return ExitCode::SUCCESS,
            // The kill has stalled. Go on: giving up would leave the processes running.
            Err(ShellError::NotKilled { .. }) => {}
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
