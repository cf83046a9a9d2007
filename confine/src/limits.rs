//! Limits of a process, lowered irrevocably, and the proof that they cannot be raised again.
//!
//! A limit that is already lower stays: nothing here raises one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    ConfineError, Evidence, Layer, ProcessLimits, SingleThreaded, SyscallOutcome, process::start_one,
};

/// The attempt of the proof, and its outcome while it was allowed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitControl {
    one_more: u64,
    before: SyscallOutcome,
}

/// Lowers all limits of the calling process. The control of the proof is made on the way: setting one
/// descriptor more than the final limit is still a lowering.
pub(crate) fn apply(limits: &ProcessLimits) -> Result<LimitControl, ConfineError> {
    let descriptors = allowed(Resource::Nofile, limits.descriptors);
    let one_more = descriptors.saturating_add(1);
    let before = set(Resource::Nofile, one_more);
    for (resource, limit, wanted) in [
        (Resource::Nofile, "open descriptors", Some(descriptors)),
        (Resource::Data, "memory", Some(limits.memory_bytes)),
        (Resource::Fsize, "size of files", Some(limits.file_bytes)),
        (Resource::Cpu, "processor time", limits.cpu.map(|time| time.as_secs().max(1))),
        // A core dump would write a process's memory into the workspace.
        (Resource::Core, "size of core dumps", Some(0)),
    ] {
        let Some(wanted) = wanted else { continue };
        if let SyscallOutcome::Failed(errno) = set(resource, allowed(resource, wanted)) {
            return Err(ConfineError::LimitApply { limit, source: std::io::Error::from_raw_os_error(errno) });
        }
    }
    Ok(LimitControl { one_more, before })
}

/// Tries to raise a limit again, which only a privileged process may. Must be called after the privileges are
/// gone.
pub(crate) fn prove(control: LimitControl) -> Result<Evidence, ConfineError> {
    let observed = set(Resource::Nofile, control.one_more);
    let expected = SyscallOutcome::Failed(libc::EPERM);
    if observed != expected {
        return Err(ConfineError::NotRefused { layer: Layer::Limits, canary: RAISE, expected, observed });
    }
    Ok(Evidence { layer: Layer::Limits, canary: RAISE.into(), before: control.before, after: observed })
}

/// Limits the processes and threads of this process's user, where the kernel counts only the processes of
/// the session: in a user namespace, or with a user that no other process has. Must be called as that user,
/// without privileges.
///
/// Elsewhere the limit would count other processes too, or would not hold at all; then it is left unchanged:
/// `None`. An attempt tells the cases apart: under a limit of a trial processes one can still be started, and
/// under a limit of one none.
pub(crate) fn bound_processes(
    one_thread: &SingleThreaded,
    processes: u64,
) -> Result<Option<Evidence>, ConfineError> {
    let lower = |current: u64, maximum: Option<u64>| {
        setrlimit(Resource::Nproc, Rlimit { current: Some(current), maximum })
            .map_err(|errno| ConfineError::LimitApply { limit: "processes", source: errno.into() })
    };
    let was = getrlimit(Resource::Nproc);
    let wanted = allowed(Resource::Nproc, processes);
    let trial = was.maximum.map_or(TRIAL_PROCESSES, |maximum| maximum.min(TRIAL_PROCESSES));
    lower(trial, was.maximum)?;
    let before = start_one(one_thread);
    lower(1, was.maximum)?;
    let after = start_one(one_thread);
    if before == SyscallOutcome::Succeeded && after == SyscallOutcome::Failed(libc::EAGAIN) {
        lower(wanted, Some(wanted))?;
        return Ok(Some(Evidence { layer: Layer::Limits, canary: START.into(), before, after }));
    }
    setrlimit(Resource::Nproc, was)
        .map_err(|errno| ConfineError::LimitApply { limit: "processes", source: errno.into() })?;
    Ok(None)
}

fn allowed(resource: Resource, wanted: u64) -> u64 {
    getrlimit(resource).maximum.map_or(wanted, |maximum| maximum.min(wanted))
}

fn set(resource: Resource, value: u64) -> SyscallOutcome {
    match setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) }) {
        Ok(()) => SyscallOutcome::Succeeded,
        Err(errno) => SyscallOutcome::Failed(errno.raw_os_error()),
    }
}

/// More than the processes of a starting session, and fewer than those of a user that has more than the
/// session.
const TRIAL_PROCESSES: u64 = 8;

const START: &str = "start a process where its user may have one";

const RAISE: &str = "allow itself one descriptor more";
