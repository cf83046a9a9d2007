//! Lowers the limits of a process irrevocably, and proves that they cannot be raised again.
//!
//! This module never raises a limit. It sets the limit of descriptors at least one below the hard limit, so that
//! the control can first raise it by one.

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::{
    ConfineError, Evidence, Layer, ProcessLimits, SingleThreaded, SyscallOutcome, process::try_start_process,
};

/// The attempt of the proof, and its outcome before the final limits were set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitControl {
    raised_limit: u64,
    before: SyscallOutcome,
}

/// Lowers all limits of the calling process. First it runs the control of the proof: it sets the limit of
/// descriptors to one more than the final value, which must succeed. The final value therefore stays below
/// the hard limit.
pub(crate) fn apply(limits: &ProcessLimits) -> Result<LimitControl, ConfineError> {
    let hard_limit = getrlimit(Resource::Nofile).maximum;
    let descriptors =
        hard_limit.map_or(limits.descriptors, |maximum| maximum.saturating_sub(1).min(limits.descriptors));
    let raised_limit = descriptors.saturating_add(1);
    let before = try_set_limit(Resource::Nofile, raised_limit);
    if before != SyscallOutcome::Succeeded {
        return Err(ConfineError::NegativeControl {
            layer: Layer::Limits,
            probe: RAISE_PROBE,
            observed: before,
        });
    }
    for (resource, limit, value) in [
        (Resource::Nofile, "open descriptors", Some(descriptors)),
        (Resource::Data, "memory", Some(limits.memory_bytes)),
        (Resource::Fsize, "size of files", Some(limits.file_bytes)),
        (Resource::Cpu, "processor time", limits.cpu.map(|time| time.as_secs().max(1))),
        // A core dump would write a process's memory into the workspace.
        (Resource::Core, "size of core dumps", Some(0)),
    ] {
        let Some(value) = value else { continue };
        if let SyscallOutcome::Failed(errno) = try_set_limit(resource, clamp_to_hard_limit(resource, value)) {
            return Err(ConfineError::LimitApply { limit, source: std::io::Error::from_raw_os_error(errno) });
        }
    }
    Ok(LimitControl { raised_limit, before })
}

/// Tries to raise a limit again, which only a privileged process may do. Call this after the privileges are
/// dropped.
pub(crate) fn prove(control: LimitControl) -> Result<Evidence, ConfineError> {
    let observed = try_set_limit(Resource::Nofile, control.raised_limit);
    let expected = SyscallOutcome::Failed(libc::EPERM);
    if observed != expected {
        return Err(ConfineError::NotRefused {
            layer: Layer::Limits,
            probe: RAISE_PROBE,
            expected,
            observed,
        });
    }
    Ok(Evidence { layer: Layer::Limits, probe: RAISE_PROBE.into(), before: control.before, after: observed })
}

/// Limits the processes and threads of this process's user, if the kernel counts only the processes of the
/// session. It does so in a user namespace, or for a user that no other process has. Call this as that user,
/// without privileges.
///
/// Otherwise the limit would also count other processes, or would not be enforced at all. The limit then
/// stays unchanged, and the result is `None`. Two attempts distinguish the cases: with at most
/// [`TRIAL_PROCESSES`] processes one more can still be started, and with at most one process none can.
pub(crate) fn bound_processes(
    one_thread: &SingleThreaded,
    processes: u64,
) -> Result<Option<Evidence>, ConfineError> {
    let lower_limit = |current: u64, maximum: Option<u64>| {
        setrlimit(Resource::Nproc, Rlimit { current: Some(current), maximum })
            .map_err(|errno| ConfineError::LimitApply { limit: "processes", source: errno.into() })
    };
    let original_limits = getrlimit(Resource::Nproc);
    let process_limit = clamp_to_hard_limit(Resource::Nproc, processes);
    let trial_limit = original_limits.maximum.map_or(TRIAL_PROCESSES, |maximum| maximum.min(TRIAL_PROCESSES));
    // Change only the soft limit for the attempts, so that it can be raised again afterwards.
    lower_limit(trial_limit, original_limits.maximum)?;
    let before = try_start_process(one_thread);
    lower_limit(1, original_limits.maximum)?;
    let after = try_start_process(one_thread);
    if before == SyscallOutcome::Succeeded && after == SyscallOutcome::Failed(libc::EAGAIN) {
        // Lower the hard limit too, so that the process can never raise it again.
        lower_limit(process_limit, Some(process_limit))?;
        return Ok(Some(Evidence { layer: Layer::Limits, probe: START_PROBE.into(), before, after }));
    }
    setrlimit(Resource::Nproc, original_limits)
        .map_err(|errno| ConfineError::LimitApply { limit: "processes", source: errno.into() })?;
    Ok(None)
}

/// Returns the wanted limit, or the current hard limit if that is lower.
fn clamp_to_hard_limit(resource: Resource, limit: u64) -> u64 {
    getrlimit(resource).maximum.map_or(limit, |maximum| maximum.min(limit))
}

fn try_set_limit(resource: Resource, value: u64) -> SyscallOutcome {
    match setrlimit(resource, Rlimit { current: Some(value), maximum: Some(value) }) {
        Ok(()) => SyscallOutcome::Succeeded,
        Err(errno) => SyscallOutcome::Failed(errno.raw_os_error()),
    }
}

/// The limit of the first attempt. A starting session has fewer processes, and a user who also runs other
/// processes has more.
const TRIAL_PROCESSES: u64 = 8;

const START_PROBE: &str = "start a process where its user may have one";

const RAISE_PROBE: &str = "allow itself one descriptor more";
