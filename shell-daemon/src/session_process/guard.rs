//! The guard, the first process of a session. It starts the confined process, and kills everything when that process or
//! the sidecar is gone.
//!
//! The guard is not confined, because it must see the processes that it kills. It reads nothing that they wrote. It
//! watches for the control socket's end, because the kernel closes the socket in every end of the sidecar.

use std::{
    io,
    os::fd::{AsFd as _, OwnedFd},
    process::ExitCode,
};

use portcullis_confine::{
    ConfineError, Layer, LayerReport, LayerStatus, Namespaces, SingleThreaded,
    process::{ForkSide, close_inherited, fork},
    prove_group,
};
use rustix::{
    event::{PollFd, PollFlags, poll},
    fs::{Mode, OFlags},
    process::{Pid, PidfdFlags, Signal, WaitOptions},
};

use super::{
    confine::refusal_message,
    session_init::{self, NICENESS},
};
use crate::{
    ShellError,
    limits::KILL_STALL_TIMEOUT,
    tree,
    wire::{LayerPlan, SessionSetup, ToSession, receive, send},
};

/// Runs a session until its end.
pub(crate) fn run() -> ExitCode {
    let Ok(one_thread) = SingleThreaded::check() else { return ExitCode::FAILURE };
    let Ok(control) = prepare(&one_thread) else { return ExitCode::FAILURE };
    let Ok(Some((ToSession::Setup(setup), mut handles))) = receive(control.as_fd()) else {
        return ExitCode::FAILURE;
    };
    // Prove the group first, because the proof forks a child. In a new process namespace, the first child is the init,
    // and no other child can be started once the init has ended.
    let group = match &setup.group {
        Ok(proof) => handles.pop().map(|limit_file| prove_group(&one_thread, limit_file, proof.clone())),
        Err(status) => {
            Some(LayerReport { layer: Layer::Cgroup, status: status.clone(), evidence: Vec::new() })
        }
    };
    let Some(group) = group else { return ExitCode::FAILURE };
    let namespaces = match prepare_namespaces(&setup, &one_thread) {
        Ok(namespaces) => namespaces,
        Err(error) => {
            // Ignore an error: without a sidecar no process waits for the refusal.
            let _ = send(control.as_fd(), &refusal_message(&error, true), &[]);
            // No process was started, so nothing has to be killed.
            return ExitCode::SUCCESS;
        }
    };
    match fork(&one_thread) {
        Ok(ForkSide::Child) => session_init::run(control, &setup, handles, namespaces, group, &one_thread),
        Ok(ForkSide::Parent { child }) => {
            let kill_method =
                if namespaces.has_processes() { KillMethod::ByKernel } else { KillMethod::ByScan };
            drop((setup, handles, namespaces, group));
            guard(&control, child, kill_method)
        }
        Err(_) => ExitCode::FAILURE,
    }
}

/// Prepares the namespaces. The first process of a process namespace must be started by a process outside it.
fn prepare_namespaces(setup: &SessionSetup, one_thread: &SingleThreaded) -> Result<Namespaces, ConfineError> {
    match &setup.plan {
        LayerPlan::Nothing => Ok(Namespaces::absent(&LayerStatus::Waived)),
        LayerPlan::Layers { without_namespaces: Some(status), .. } => Ok(Namespaces::absent(status)),
        LayerPlan::Layers { waived, without_namespaces: None } => {
            Namespaces::prepare(one_thread, waived, setup.user, setup.separate_user)
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
    // Leave the sidecar's terminal and process group. This fails for a group leader, which has left them already.
    let _ = rustix::process::setsid();
    // With autogroup scheduling (sched(7)), the kernel weighs each terminal session as a whole. This sets that
    // weight; the niceness of single processes then counts only within the session.
    let _ = std::fs::write("/proc/self/autogroup", NICENESS.to_string());
    // Adopt orphans, even those of a killed command-init, so that they stay below this process.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid()))?;
    Ok(control)
}

/// How all processes of a session are killed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillMethod {
    /// The kernel kills all processes of a process namespace with its first process.
    ByKernel,
    /// The guard kills one process after the other until it finds none.
    ByScan,
}

/// Waits until the sidecar or the session-init is gone, then kills all processes of the session.
fn guard(control: &OwnedFd, session_init: Pid, kill_method: KillMethod) -> ExitCode {
    let Ok(handle) = rustix::process::pidfd_open(session_init, PidfdFlags::empty()) else {
        return ExitCode::FAILURE;
    };
    let mut poll_fds =
        [PollFd::from_borrowed_fd(control.as_fd(), PollFlags::empty()), PollFd::new(&handle, PollFlags::IN)];
    // Poll the control socket only for a hang-up, because its messages are for the session-init.
    while matches!(poll(&mut poll_fds, None), Err(rustix::io::Errno::INTR)) {}
    if kill_method == KillMethod::ByKernel
        && rustix::process::pidfd_send_signal(&handle, Signal::KILL).is_ok()
    {
        // The wait returns after all other processes of the namespace are gone, so the loop below usually finds none.
        let _ =
            rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(session_init), WaitOptions::empty()));
    }
    let Some(guard) = tree::Process::current() else { return ExitCode::FAILURE };
    loop {
        let killed = tree::kill_descendants(guard, KILL_STALL_TIMEOUT);
        while matches!(rustix::process::wait(WaitOptions::NOHANG), Ok(Some(_))) {}
        match killed {
            Ok(()) => return ExitCode::SUCCESS,
            // The kill has stalled. Go on: giving up would leave the processes running.
            Err(ShellError::NotKilled { .. }) => {}
            // Without `/proc` the guard cannot find the remaining processes.
            Err(_) => return ExitCode::FAILURE,
        }
    }
}
