//! Errors of confinement: a thread or process could not be confined, or the confinement could not be proved.
//!
//! For operators: texts hold host paths. None of these reaches a model.

use std::{io, path::PathBuf};

use crate::{Layer, SyscallOutcome};

/// A failure of confinement. After any error of [`crate::confine_current_thread`] the thread may be half
/// confined: it must end without running a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// A required layer does not exist here.
    #[error("{layer} is required, but {reason}")]
    LayerMissing {
        /// The layer at fault.
        layer: Layer,
        /// The missing feature of the kernel.
        reason: String,
    },
    /// An attempt that the layer must refuse was refused before the layer was applied, so a refusal would
    /// prove nothing. The thread is confined from outside, or has been confined before.
    #[error("cannot prove {layer}: before it was applied, to {canary} already gave {observed}")]
    NegativeControl {
        /// The layer at fault.
        layer: Layer,
        /// The attempt, worded to follow "to" in the message.
        canary: &'static str,
        /// The outcome of the attempt.
        observed: SyscallOutcome,
    },
    /// A layer was applied, and does not refuse what it must refuse.
    #[error("{layer} does not hold: to {canary} was to give {expected}, and gave {observed}")]
    NotRefused {
        /// The layer at fault.
        layer: Layer,
        /// The attempt, worded to follow "to" in the message.
        canary: &'static str,
        /// The outcome that this layer must cause.
        expected: SyscallOutcome,
        /// The actual outcome. `ok` for the state folder means that a mount contains it; `ENOENT` means that
        /// the canary was deleted while we ran.
        observed: SyscallOutcome,
    },
    /// The canary file could not be made.
    #[error("create the canary {}", path.display())]
    CanaryCreate {
        /// The canary's path.
        path: PathBuf,
        /// The I/O error of making it.
        #[source]
        source: io::Error,
    },
    /// The canary's path holds something other than a plain file of ours: another user writes in the state
    /// folder.
    #[error("the canary {} is not a regular file of this user", path.display())]
    CanaryForeign {
        /// The canary's path.
        path: PathBuf,
    },
    /// A mount's handle is not a directory, or cannot be examined.
    #[error("mount handle {index} is not an open directory")]
    MountNotDirectory {
        /// Its index in `mounts`, from 0.
        index: usize,
        /// The cause, if it could not be examined.
        #[source]
        source: Option<io::Error>,
    },
    /// A thread is to have mounts and a network: one that reads files and connects could carry them away.
    #[error("a thread with a network has no mounts, and this one is to have {mounts}")]
    MountsWithNetwork {
        /// The number of mounts.
        mounts: usize,
    },
    /// The port that a thread with a network must not reach could not be opened.
    #[error("listen on a port of the loopback device, as the target of an attempt")]
    CanaryPort {
        /// The I/O error of listening.
        #[source]
        source: io::Error,
    },
    /// A path's handle is of a kind for which no rule can be made, or cannot be examined.
    #[error("path handle {index} cannot be granted")]
    PathUnusable {
        /// Its index in `paths`, from 0.
        index: usize,
        /// The error of examining it, or its kind.
        #[source]
        source: io::Error,
    },
    /// The process has more than one thread: the other threads would stay unconfined.
    #[error("a process must have one thread to be confined, and this one has {threads}")]
    ThreadsRunning {
        /// The number of threads.
        threads: usize,
    },
    /// The process's threads could not be counted.
    #[error("count the threads of this process")]
    ThreadsUncounted {
        /// The I/O error of `/proc`.
        #[source]
        source: io::Error,
    },
    /// A limit could not be set.
    #[error("limit the {limit}")]
    LimitApply {
        /// The limit's name.
        limit: &'static str,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The process could not become another user.
    #[error("become user {uid}")]
    UserKept {
        /// The user's number.
        uid: u32,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The capabilities could not be given up.
    #[error("give up all capabilities")]
    CapabilitiesKept {
        /// The error of the system call, or that it had no effect.
        #[source]
        source: io::Error,
    },
    /// The kernel refused to forbid new privileges.
    #[error("set no_new_privs")]
    NoNewPrivs {
        /// The error of the system call, or that it had no effect.
        #[source]
        source: io::Error,
    },
    /// A namespace was entered but could not be set up or used. The process is partly in it and must end.
    #[error("{step}, in the new namespaces")]
    NamespaceBroken {
        /// The step that failed.
        step: &'static str,
        /// The step's error.
        #[source]
        source: io::Error,
    },
    /// Landlock refused the rules.
    #[error("apply landlock")]
    LandlockApply {
        /// Landlock's error.
        #[source]
        source: landlock::RulesetError,
    },
    /// Landlock accepted the rules, and enforces less of them than this kernel's version promises.
    #[error("landlock enforces less than its version {abi} promises")]
    LandlockDegraded {
        /// The version that the kernel reported.
        abi: u32,
    },
    /// The filter could not be compiled; a bug of ours.
    #[error("compile the seccomp filter")]
    SeccompCompile {
        /// The compiler's error.
        #[source]
        source: seccompiler::BackendError,
    },
    /// The kernel refused the filter.
    #[error("apply the seccomp filter")]
    SeccompApply {
        /// The error of the system call.
        #[source]
        source: seccompiler::Error,
    },
    /// The application has a handler for the signal that frees stuck threads. Ours would break the
    /// application, and its handler may restart system calls, so this is an error.
    #[error("signal {signal} already has a handler of the application")]
    InterruptTaken {
        /// The signal's number.
        signal: i32,
    },
    /// The handler could not be installed.
    #[error("install the handler of signal {signal}")]
    InterruptInstall {
        /// The signal's number.
        signal: i32,
        /// The error of the system call.
        #[source]
        source: io::Error,
    },
    /// The scratch thread for the proof could not be started, or panicked.
    #[error("run a scratch thread")]
    ScratchThread {
        /// The error of starting it; of a panic, only that it happened.
        #[source]
        source: io::Error,
    },
}
