//! Confines a process with limits, privileges, Landlock and seccomp, each with a control before and a proof
//! afterwards. Also contains the few calls on processes that safe libraries lack.
//!
//! A thread's layers bind a process only if the process has one thread, which [`SingleThreaded`] guarantees.

use std::{
    io, marker::PhantomData, os::unix::process::ExitStatusExt as _, process::ExitStatus, time::Duration,
};

use rustix::{
    process::{Gid, Uid},
    thread::{CapabilitySet, CapabilitySets},
};

use crate::{
    ChangeListener, ConfineError, Evidence, KernelSupport, Layer, LayerReport, LayerStatus,
    ProcessConfinement, ProcessPosture, ProcessUser, Requirement, SyscallOutcome, canary::Probe, landlock,
    limits, probe_kernel, seccomp, sys,
};

/// A token that proves that this process has one thread. The holder promises to start no other thread.
#[derive(Debug)]
pub struct SingleThreaded(PhantomData<*const ()>);

impl SingleThreaded {
    /// Returns the token if this process has one thread.
    ///
    /// # Errors
    /// [`ConfineError::ThreadsRunning`] if there are others, [`ConfineError::ThreadsUncounted`] without
    /// `/proc`.
    pub fn check() -> Result<Self, ConfineError> {
        let threads = std::fs::read_dir("/proc/self/task")
            .map_err(|source| ConfineError::ThreadsUncounted { source })?
            .count();
        if threads == 1 { Ok(Self(PhantomData)) } else { Err(ConfineError::ThreadsRunning { threads }) }
    }

    /// Returns a token for a fresh thread of a test, which shares nothing with other threads that the test
    /// depends on.
    #[cfg(test)]
    pub(crate) fn pretend() -> Self {
        Self(PhantomData)
    }
}

/// Confines the calling process and its children for the rest of their lives, and proves each layer in the process.
///
/// If changes are to be watched, the listener must be passed on before this process changes a file: until
/// then, every change blocks.
///
/// # Errors
/// [`ConfineError`] if a required layer is missing, cannot be applied, or does not refuse its attempts. The
/// process may then be partially confined, and must end.
pub fn confine_current_process(
    one_thread: &SingleThreaded,
    rules: &ProcessConfinement,
) -> Result<(ProcessPosture, Option<ChangeListener>), ConfineError> {
    let limit_control = limits::apply(&rules.limits)?;
    let (mut layers, listener) = confine_privileges(rules, &probe_kernel())?;
    // Prove the limits after the privilege to raise them is dropped. The seccomp filter does not forbid the
    // attempt, so a refusal comes from the limit.
    let mut evidence = vec![limits::prove(limit_control)?];
    if let Some(processes) = rules.limits.processes {
        evidence.extend(limits::bound_processes(one_thread, processes)?);
    }
    let limits = LayerReport { layer: Layer::Limits, status: LayerStatus::Enforced, evidence };
    layers.insert(0, limits);
    Ok((ProcessPosture::new(layers), listener))
}

/// Applies all layers that bind a thread. `kernel` is an argument, so that a test can take a layer away.
fn confine_privileges(
    rules: &ProcessConfinement,
    kernel: &KernelSupport,
) -> Result<(Vec<LayerReport>, Option<ChangeListener>), ConfineError> {
    let mut listener = None;
    let abi = kernel.landlock_abi.unwrap_or_default();
    let layers = [
        apply_layer(rules, kernel, Layer::Privileges, || give_up_privileges(rules.user))?,
        apply_layer(rules, kernel, Layer::Landlock, || {
            landlock::restrict_process(&rules.paths, rules.network.as_ref(), abi)
        })?,
        apply_layer(rules, kernel, Layer::Seccomp, || {
            // First, because the allowlist forbids further filters. The proof of this layer changes no file.
            if rules.watch_changes {
                listener = Some(seccomp::watch_changes()?.into());
            }
            seccomp::restrict_process(rules.network.as_ref())
        })?,
    ];
    Ok((layers.into(), listener))
}

/// Makes the control attempts, applies one layer, and proves it.
fn apply_layer(
    rules: &ProcessConfinement,
    kernel: &KernelSupport,
    layer: Layer,
    apply: impl FnOnce() -> Result<LayerStatus, ConfineError>,
) -> Result<LayerReport, ConfineError> {
    if rules.requirement(layer) == Requirement::Waived {
        return Ok(LayerReport { layer, status: LayerStatus::Waived, evidence: Vec::new() });
    }
    if let Some(reason) = kernel.missing(layer) {
        return Err(ConfineError::LayerMissing { layer, reason: reason.to_owned() });
    }
    let mut controls = Vec::new();
    let abi = kernel.landlock_abi.unwrap_or_default();
    // The first process of a process namespace has a parent without an id, which it cannot signal.
    let has_parent = rustix::process::getppid().is_some();
    let probes = Probe::process_probes(layer, abi, rules.user).iter();
    for probe in probes.filter(|probe| has_parent || **probe != Probe::SignalParent) {
        let observed = rules.canary.attempt(*probe);
        if !probe.is_valid_control(observed) {
            return Err(ConfineError::NegativeControl { layer, probe: probe.describe(), observed });
        }
        controls.push((*probe, observed));
    }
    let status = apply()?;
    let mut evidence = Vec::new();
    for (probe, before) in controls {
        let observed = rules.canary.attempt(probe);
        if observed != probe.refusal() {
            return Err(ConfineError::NotRefused {
                layer,
                probe: probe.describe(),
                expected: probe.refusal(),
                observed,
            });
        }
        evidence.push(Evidence { layer, probe: probe.describe().into(), before, after: observed });
    }
    Ok(LayerReport { layer, status, evidence })
}

/// Drops all capabilities, and the ways to gain new ones.
fn give_up_privileges(user: Option<ProcessUser>) -> Result<LayerStatus, ConfineError> {
    let capabilities_error =
        |errno: rustix::io::Errno| ConfineError::CapabilitiesKept { source: errno.into() };
    rustix::thread::set_no_new_privs(true)
        .map_err(|errno| ConfineError::NoNewPrivs { source: errno.into() })?;
    // Landlock and seccomp set this flag too. Where they are waived, only this check notices a failure.
    if !rustix::thread::no_new_privs().map_err(|errno| ConfineError::NoNewPrivs { source: errno.into() })? {
        return Err(ConfineError::NoNewPrivsIneffective);
    }
    // Dropping from the bounding set needs a capability, so an ordinary user stops here. That is harmless: with
    // no_new_privs, a program never gains a capability that its caller lacks.
    for bit in 0..u64::BITS {
        let capability = CapabilitySet::from_bits_retain(1 << bit);
        if rustix::thread::remove_capability_from_bounding_set(capability).is_err() {
            break;
        }
    }
    if let Some(user) = user {
        become_user(user)?;
    }
    rustix::thread::clear_ambient_capability_set().map_err(capabilities_error)?;
    let no_capabilities = CapabilitySets {
        effective: CapabilitySet::empty(),
        permitted: CapabilitySet::empty(),
        inheritable: CapabilitySet::empty(),
    };
    rustix::thread::set_capabilities(None, no_capabilities).map_err(capabilities_error)?;
    if rustix::thread::capabilities(None).map_err(capabilities_error)? != no_capabilities {
        return Err(ConfineError::CapabilitiesLeft);
    }
    Ok(LayerStatus::Enforced)
}

/// Switches this process, which has one thread, to another user without supplementary groups.
pub(crate) fn become_user(user: ProcessUser) -> Result<(), ConfineError> {
    let (uid, gid) = (Uid::from_raw(user.uid), Gid::from_raw(user.gid));
    let is_already_user = (rustix::process::getuid(), rustix::process::geteuid()) == (uid, uid)
        && (rustix::process::getgid(), rustix::process::getegid()) == (gid, gid)
        && rustix::process::getgroups().is_ok_and(|groups| groups.is_empty());
    if is_already_user {
        return Ok(());
    }
    // The user last: a process that is not root may not change its groups.
    rustix::thread::set_thread_groups(&[])
        .and_then(|()| rustix::thread::set_thread_res_gid(gid, gid, gid))
        .and_then(|()| rustix::thread::set_thread_res_uid(uid, uid, uid))
        .map_err(|errno| ConfineError::UserKept { uid: user.uid, source: errno.into() })
}

/// The side of a [`fork`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ForkSide {
    /// The calling process.
    Parent {
        /// The new process.
        child: rustix::process::Pid,
    },
    /// The new process.
    Child,
}

/// Forks this process. Both sides own all descriptors, so the child must drop those that it must not have.
///
/// # Errors
/// The kernel's error, for example when the limit of processes is reached.
pub fn fork(one_thread: &SingleThreaded) -> io::Result<ForkSide> {
    Ok(match sys::fork(one_thread)? {
        sys::RawForkSide::Child => ForkSide::Child,
        sys::RawForkSide::Parent(child) => ForkSide::Parent {
            child: rustix::process::Pid::from_raw(child)
                .ok_or_else(|| io::Error::other("the child has no number"))?,
        },
    })
}

/// Starts a process that ends immediately, and waits for it.
pub(crate) fn try_start_process(one_thread: &SingleThreaded) -> SyscallOutcome {
    match fork(one_thread) {
        Ok(ForkSide::Child) => sys::exit(0),
        Ok(ForkSide::Parent { child }) => {
            let options = rustix::process::WaitOptions::empty();
            // Reap the child, so that it does not count against a later attempt. An error changes nothing:
            // the start has succeeded.
            let _ = rustix::io::retry_on_intr(|| rustix::process::waitpid(Some(child), options));
            SyscallOutcome::Succeeded
        }
        Err(error) => SyscallOutcome::Failed(error.raw_os_error().unwrap_or_default()),
    }
}

/// Gives the calling thread the lowest real-time priority, so that it runs before all threads of ordinary scheduling.
/// Use it for a thread that sleeps nearly always and that must not be starved by the processes it watches. An
/// ordinary priority would not be enough: a group of processes that the kernel schedules as one entity would
/// still get a share of the time. Children of the thread have ordinary priority.
///
/// # Errors
/// The kernel's error. The call usually needs `CAP_SYS_NICE`.
pub fn set_realtime_priority() -> io::Result<()> {
    sys::schedule_in_real_time()
}

/// Returns whether two processes share one address space, as after `vfork` until the new program runs
/// (kcmp(2)). `None` if the kernel does not tell: it must be built with `kcmp`, and the caller must be
/// allowed to inspect both processes.
#[must_use]
pub fn share_memory(first: rustix::process::Pid, second: rustix::process::Pid) -> Option<bool> {
    sys::share_memory(first.as_raw_pid(), second.as_raw_pid())
}

/// Returns whether two threads share one descriptor table (kcmp(2)). `None` if the kernel does not tell.
#[must_use]
pub fn share_descriptors(first: rustix::process::Pid, second: rustix::process::Pid) -> Option<bool> {
    sys::share_descriptors(first.as_raw_pid(), second.as_raw_pid())
}

/// Lets the calling thread inspect the processes of a user, as that user's own processes may. It is for root
/// without `CAP_SYS_PTRACE`, as in most containers. The thread keeps all other rights of root except the
/// rights on files, so use it only for files below `/proc`.
///
/// # Errors
/// The kernel's error. The call usually needs `CAP_SETUID` and `CAP_SETGID`.
pub fn set_thread_user(user: ProcessUser) -> io::Result<()> {
    let mut sets = rustix::thread::capabilities(None)?;
    if sets.effective.contains(CapabilitySet::SYS_PTRACE) {
        return Ok(());
    }
    sys::become_user_of_thread(user.uid, user.gid)?;
    // Changing the effective user cleared the effective capabilities. Set them again, without the
    // capabilities on files.
    sets.effective.remove(FILE_CAPABILITIES);
    sets.effective &= sets.permitted;
    Ok(rustix::thread::set_capabilities(None, sets)?)
}

/// The capabilities that bypass a file's owner and mode: `CAP_FS_SET` in `include/linux/capability.h`.
const FILE_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::DAC_READ_SEARCH)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::LINUX_IMMUTABLE)
    .union(CapabilitySet::MAC_OVERRIDE);

/// Closes all descriptors except the standard ones, because the parent may have leaked some. Call this first,
/// before this process owns any descriptor.
///
/// # Errors
/// The kernel's error.
pub fn close_inherited(one_thread: &SingleThreaded) -> io::Result<()> {
    sys::close_from(3, one_thread)
}

/// A child that has ended.
#[derive(Clone, Copy, Debug)]
pub struct EndedChild {
    /// The process id.
    pub pid: rustix::process::Pid,
    /// The child's exit status.
    pub status: ExitStatus,
    /// The processor time of the child and of the children that it waited for.
    pub cpu: Duration,
    /// The largest memory of any one of these processes.
    pub peak_memory_bytes: u64,
}

/// Waits until a child has ended. Returns `None` if no child is left.
///
/// # Errors
/// The kernel's error.
pub fn wait_for_any_child() -> io::Result<Option<EndedChild>> {
    let Some(reaped) = sys::wait_for_any_child()? else { return Ok(None) };
    let Some(pid) = rustix::process::Pid::from_raw(reaped.pid) else { return Ok(None) };
    // getrusage(2): `ru_maxrss` is in kilobytes on Linux.
    let kilobytes = u64::try_from(reaped.usage.ru_maxrss).unwrap_or_default();
    Ok(Some(EndedChild {
        pid,
        status: ExitStatus::from_raw(reaped.status),
        cpu: duration(reaped.usage.ru_utime) + duration(reaped.usage.ru_stime),
        peak_memory_bytes: kilobytes.saturating_mul(1024),
    }))
}

fn duration(time: libc::timeval) -> Duration {
    Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or_default())
        + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or_default())
}

#[cfg(test)]
mod tests;
