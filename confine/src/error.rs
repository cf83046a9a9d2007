//! [`ConfineError`]: a thread or process could not be confined, or its confinement could not be proved.
//!
//! The texts are for operators and name host paths. A model never reads them.

use std::{io, path::PathBuf};

use crate::{Layer, SyscallOutcome};

/// A failure of confinement. After any error of [`crate::confine_current_thread`] the thread may be partially
/// confined, so it must end without running a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// A required layer is not available here.
    #[error("{layer} is required, but {reason}")]
    LayerMissing {
        /// The layer at fault.
        layer: Layer,
        /// The missing feature of the kernel.
        reason: String,
    },
    /// Something refused an attempt before the layer was applied, so a later refusal would prove nothing
    /// about the layer. The thread is confined from outside, or was confined earlier.
    #[error("cannot prove {layer}: the attempt to {probe} gave {observed} even before the layer was applied")]
    NegativeControl {
        /// The layer at fault.
        layer: Layer,
        /// The attempt, worded to follow "to" in the message.
        probe: &'static str,
        /// The outcome of the attempt.
        observed: SyscallOutcome,
    },
    /// The layer was applied, but it does not refuse an attempt that it must refuse.
    #[error("{layer} does not hold: the attempt to {probe} gave {observed} instead of {expected}")]
    NotRefused {
        /// The layer at fault.
        layer: Layer,
        /// The attempt, worded to follow "to" in the message.
        probe: &'static str,
        /// The outcome that this layer must cause.
        expected: SyscallOutcome,
        /// The actual outcome. For the state folder, `ok` means that a mount contains it, and `ENOENT` means that the
        /// canary was deleted while this process ran.
        observed: SyscallOutcome,
    },
    /// The canary file could not be created.
    #[error("cannot create the canary {}", path.display())]
    CanaryCreate {
        /// The canary's path.
        path: PathBuf,
        /// The I/O error of creating it.
        #[source]
        source: io::Error,
    },
    /// The canary's path holds something other than a plain file of this user, so another user writes in the state
    /// folder.
    #[error("the canary {} is not a regular file of this user", path.display())]
    CanaryForeign {
        /// The canary's path.
        path: PathBuf,
    },
    /// A mount's handle is not a directory, or cannot be examined.
    #[error("mount handle {index} is not an open directory")]
    MountNotDirectory {
        /// The handle's index in `mounts`, from 0.
        index: usize,
        /// The cause, if the handle could not be examined.
        #[source]
        source: Option<io::Error>,
    },
    /// The rules give a thread both mounts and a network. Such a thread could exfiltrate files.
    #[error("a thread with network access cannot have mounts, and {mounts} were requested")]
    MountsWithNetwork {
        /// The number of mounts.
        mounts: usize,
    },
    /// The port that a thread with a network must not reach could not be opened.
    #[error("cannot listen on a port of the loopback device, as the target of an attempt")]
    CanaryPort {
        /// The I/O error of listening.
        #[source]
        source: io::Error,
    },
    /// The file behind a path's handle cannot be examined, or is of a kind that no rule can grant.
    #[error("path handle {index} cannot be granted")]
    PathUnusable {
        /// The handle's index in `paths`, from 0.
        index: usize,
        /// The error of examining the handle, or the kind of its file.
        #[source]
        source: io::Error,
    },
    /// The process has more than one thread. The other threads would stay unconfined.
    #[error("a process must have one thread to be confined, and this one has {threads}")]
    ThreadsRunning {
        /// The number of threads.
        threads: usize,
    },
    /// The process's threads could not be counted.
    #[error("cannot count the threads of this process")]
    ThreadsUncounted {
        /// The I/O error of `/proc`.
        #[source]
        source: io::Error,
    },
    /// A limit could not be set.
    #[error("cannot limit the {limit}")]
    LimitApply {
        /// The limit's name.
        limit: &'static str,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The process could not switch to another user.
    #[error("cannot become user {uid}")]
    UserKept {
        /// The user's number.
        uid: u32,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// Some capability could not be dropped.
    #[error("cannot give up all capabilities")]
    CapabilitiesKept {
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// Some capabilities are left, although the kernel reported that they were dropped.
    #[error("some capabilities are left after they were given up")]
    CapabilitiesLeft,
    /// The kernel refused to forbid new privileges.
    #[error("cannot set no_new_privs")]
    NoNewPrivs {
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// `no_new_privs` is not set, although the kernel reported that it was.
    #[error("no_new_privs is not set after it was set")]
    NoNewPrivsIneffective,
    /// A namespace was entered but could not be set up or used. The process is in an intermediate state and
    /// must end.
    #[error("in the new namespaces, this process cannot {step}")]
    NamespaceBroken {
        /// The step that failed, worded to follow "cannot" in the message.
        step: &'static str,
        /// The step's error.
        #[source]
        source: io::Error,
    },
    /// Landlock refused the rules.
    #[error("cannot apply landlock")]
    LandlockApply {
        /// Landlock's error.
        #[source]
        source: landlock::RulesetError,
    },
    /// Landlock accepted the rules, but enforces less than this kernel's version promises.
    #[error("landlock enforces less than its version {abi} promises")]
    LandlockDegraded {
        /// The version that the kernel reported.
        abi: u32,
    },
    /// The filter could not be compiled, which is a bug of this crate.
    #[error("cannot compile the seccomp filter")]
    SeccompCompile {
        /// The compiler's error.
        #[source]
        source: seccompiler::BackendError,
    },
    /// The kernel refused the filter.
    #[error("cannot apply the seccomp filter")]
    SeccompApply {
        /// The error of the system call.
        #[source]
        source: seccompiler::Error,
    },
    /// The kernel provides no listener for changes of files (Linux 5.5 or later does), or another program
    /// holds the only listener that a process can have.
    #[error("cannot watch the changes that the process makes")]
    SeccompListener {
        /// The kernel's error.
        #[source]
        source: std::io::Error,
    },
    /// The application has its own handler for the signal that interrupts stuck threads. Replacing it would
    /// break the application, and keeping it may restart system calls instead of ending them.
    #[error("signal {signal} already has a handler of the application")]
    InterruptTaken {
        /// The signal's number.
        signal: i32,
    },
    /// The handler could not be installed.
    #[error("cannot install the handler of signal {signal}")]
    InterruptInstall {
        /// The signal's number.
        signal: i32,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The scratch thread for the proof could not be started.
    #[error("cannot start a scratch thread")]
    ScratchThread {
        /// The error of starting the thread.
        #[source]
        source: io::Error,
    },
    /// The scratch thread for the proof panicked.
    #[error("the scratch thread panicked")]
    ScratchThreadPanicked,
}
