//! Why a thread could not be confined, or could not be shown to be.
//!
//! For operators: texts hold host paths. None of these reaches a model.

use std::{io, path::PathBuf};

use crate::{Layer, Outcome};

/// A failure of confinement. After any error of [`crate::confine_current_thread`] the thread may be half
/// confined: it must end without running a job.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ConfineError {
    /// A required layer does not exist here.
    #[error("{layer} is required, but {reason}")]
    LayerMissing {
        /// The layer.
        layer: Layer,
        /// What the kernel or the platform lacks.
        reason: String,
    },
    /// What a layer is to refuse was refused already, so that a refusal would prove nothing. Either the
    /// thread is confined by someone else, or it has been confined before.
    #[error("cannot prove {layer}: before it was applied, to {canary} already gave {observed}")]
    NegativeControl {
        /// The layer.
        layer: Layer,
        /// What was tried.
        canary: &'static str,
        /// What came of it.
        observed: Outcome,
    },
    /// A layer is applied and does not refuse what it has to refuse.
    #[error("{layer} does not hold: to {canary} was to give {expected}, and gave {observed}")]
    NotRefused {
        /// The layer.
        layer: Layer,
        /// What was tried.
        canary: &'static str,
        /// What a thread under this layer meets.
        expected: Outcome,
        /// What came of it. `ok` for the state folder means that a mount contains it; `ENOENT`, that the
        /// canary was deleted below us.
        observed: Outcome,
    },
    /// The file that a confined thread must not reach could not be made.
    #[error("create the canary {}", path.display())]
    CanaryCreate {
        /// Where it was to be.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// What lies in the canary's place is no plain file of ours: somebody else writes in the state folder.
    #[error("the canary {} is not a regular file of this user", path.display())]
    CanaryForeign {
        /// Where it lies.
        path: PathBuf,
    },
    /// A mount's handle is not a directory, or cannot be examined.
    #[error("mount handle {index} is not an open directory")]
    MountNotDirectory {
        /// Its place in `mounts`, from 0.
        index: usize,
        /// The cause, if it could not be examined.
        #[source]
        source: Option<io::Error>,
    },
    /// A path's handle is of a kind that its rule cannot be made for, or cannot be examined.
    #[error("path handle {index} cannot be granted")]
    PathUnusable {
        /// Its place in `paths`, from 0.
        index: usize,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The process has more than one thread: the others would stay free.
    #[error("a process must have one thread to be confined, and this one has {threads}")]
    ThreadsRunning {
        /// How many it has.
        threads: usize,
    },
    /// How many threads the process has could not be told.
    #[error("count the threads of this process")]
    ThreadsUncounted {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A limit could not be set.
    #[error("limit the {limit}")]
    LimitApply {
        /// Which.
        limit: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The process could not become another user.
    #[error("become user {uid}")]
    UserKept {
        /// Who it was to become.
        uid: u32,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The capabilities could not be given up.
    #[error("give up all capabilities")]
    CapabilitiesKept {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The kernel refused to forbid new privileges.
    #[error("set no_new_privs")]
    NoNewPrivs {
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// A namespace was entered, and what it needs could not be set up: the process is between two worlds.
    #[error("{step}, in the new namespaces")]
    NamespaceBroken {
        /// What could not be done.
        step: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// Landlock refused the rules.
    #[cfg(target_os = "linux")]
    #[error("apply landlock")]
    LandlockApply {
        /// The cause.
        #[source]
        source: landlock::RulesetError,
    },
    /// Landlock took the rules and enforces less of them than this kernel's version promises.
    #[error("landlock enforces less than its version {abi} promises")]
    LandlockDegraded {
        /// The version that the kernel reported.
        abi: u32,
    },
    /// The filter could not be compiled; a bug of ours.
    #[cfg(target_os = "linux")]
    #[error("compile the seccomp filter")]
    SeccompCompile {
        /// The cause.
        #[source]
        source: seccompiler::BackendError,
    },
    /// The kernel refused the filter.
    #[cfg(target_os = "linux")]
    #[error("apply the seccomp filter")]
    SeccompApply {
        /// The cause.
        #[source]
        source: seccompiler::Error,
    },
    /// The application has its own handler for the signal that frees stuck threads. Ours would break it,
    /// and its own may restart system calls, so neither is put up with silently.
    #[error("signal {signal} has a handler of the application's")]
    InterruptTaken {
        /// The signal's number.
        signal: i32,
    },
    /// The handler could not be installed.
    #[error("install the handler of signal {signal}")]
    InterruptInstall {
        /// The signal's number.
        signal: i32,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The thread to try the layers on could not be started, or panicked.
    #[error("run a scratch thread")]
    ScratchThread {
        /// The cause.
        #[source]
        source: io::Error,
    },
}
