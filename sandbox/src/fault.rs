//! The errors of the sandbox, one enum for each audience: [`GuestFault`] tells how a guest failed, and [`WasmError`]
//! how the runner failed.

use std::time::Duration;

use portcullis_types::{ToolError, ToolErrorCode, ToolErrorKind};
use thiserror::Error;

/// Advice for the author of a tool that writes text to its standard output.
pub(super) const STDOUT_ADVICE: &str = "standard output carries only frames, so there is no `println!` in a tool: write with `eprintln!`, or report with `ctx.progress`";

/// The way in which a guest failed. Each fault has a stable code, and none of them harms the runner.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GuestFault {
    /// The guest ran until its deadline.
    #[error("the tool did not finish within {limit:?}")]
    Timeout {
        /// The call's time limit.
        limit: Duration,
    },
    /// The caller cancelled the call.
    #[error("the call was cancelled")]
    Cancelled,
    /// The guest needed more memory than its limit, and stopped.
    #[error("the tool needs more than its {limit_bytes} bytes of memory")]
    MemoryLimit {
        /// The maximum size of all memories of the guest together.
        limit_bytes: usize,
    },
    /// The guest needed larger tables than the limit, and stopped.
    #[error("the tool needs larger tables than it may have")]
    TableLimit,
    /// The guest recursed too deeply.
    #[error("the tool exhausted its stack")]
    StackOverflow,
    /// A frame on the guest's standard output was too long.
    #[error("the tool wrote a frame of more than {limit_bytes} bytes")]
    FrameTooLarge {
        /// The maximum size of the frame.
        limit_bytes: usize,
    },
    /// A line of the guest's standard output was not a frame.
    #[error("the tool wrote a line that is not a frame: {reason}")]
    MalformedFrame {
        /// The parser's reason.
        reason: String,
    },
    /// The guest ended without a result.
    #[error("the tool ended without a result")]
    NoFinalFrame,
    /// The guest wrote more output after its result.
    #[error("the tool wrote more after its result; {STDOUT_ADVICE}")]
    OutputAfterFinalFrame,
    /// The guest wrote too many frames.
    #[error("the tool wrote more than {limit} progress and update frames")]
    TooManyFrames {
        /// The maximum number of progress, update and chunk frames of a call.
        limit: usize,
    },
    /// The guest sent bytes, but its call is not the sending end of a transfer.
    #[error("the tool sent bytes, but its call is not the sending end of a transfer")]
    UnwantedChunk,
    /// The guest sent more bytes than a transfer may carry.
    #[error("the tool sent more than {limit_bytes} bytes")]
    TransferTooLarge {
        /// The maximum size of the transfer.
        limit_bytes: u64,
    },
    /// The guest ended with an exit code other than 0.
    #[error("the tool ended with exit code {code}")]
    ExitCode {
        /// The exit code.
        code: i32,
    },
    /// The guest trapped.
    #[error("the tool crashed: {reason}")]
    Trap {
        /// The kind of trap.
        reason: String,
    },
}

impl GuestFault {
    /// Returns the stable code of the fault.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => ToolErrorKind::Timeout.as_str(),
            Self::Cancelled => ToolErrorKind::Cancelled.as_str(),
            Self::MemoryLimit { .. } => ToolErrorCode::MemoryLimit.as_str(),
            Self::TableLimit => ToolErrorCode::TableLimit.as_str(),
            Self::StackOverflow => ToolErrorCode::StackOverflow.as_str(),
            Self::FrameTooLarge { .. } => ToolErrorCode::FrameTooLarge.as_str(),
            Self::MalformedFrame { .. } => ToolErrorCode::MalformedFrame.as_str(),
            Self::NoFinalFrame => ToolErrorCode::NoFinalFrame.as_str(),
            Self::OutputAfterFinalFrame => ToolErrorCode::OutputAfterFinalFrame.as_str(),
            Self::TooManyFrames { .. } => ToolErrorCode::TooManyFrames.as_str(),
            Self::UnwantedChunk => ToolErrorCode::UnwantedChunk.as_str(),
            Self::TransferTooLarge { .. } => ToolErrorCode::TransferTooLarge.as_str(),
            Self::ExitCode { .. } => ToolErrorCode::GuestExit.as_str(),
            Self::Trap { .. } => ToolErrorCode::GuestTrap.as_str(),
        }
    }

    /// Returns the kind of error that the caller receives.
    #[must_use]
    pub const fn kind(&self) -> ToolErrorKind {
        match self {
            Self::Timeout { .. } => ToolErrorKind::Timeout,
            Self::Cancelled => ToolErrorKind::Cancelled,
            Self::MemoryLimit { .. }
            | Self::TableLimit
            | Self::StackOverflow
            | Self::FrameTooLarge { .. }
            | Self::TooManyFrames { .. }
            | Self::TransferTooLarge { .. } => ToolErrorKind::ResourceLimit,
            Self::MalformedFrame { .. }
            | Self::NoFinalFrame
            | Self::OutputAfterFinalFrame
            | Self::UnwantedChunk
            | Self::ExitCode { .. }
            | Self::Trap { .. } => ToolErrorKind::Failed,
        }
    }
}

impl From<&GuestFault> for ToolError {
    fn from(fault: &GuestFault) -> Self {
        Self::new(fault.kind(), fault.to_string()).with_code(fault.code())
    }
}

/// The reason why the runner could not run a guest. It is for the operator: a model only reads that the
/// tool is unavailable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WasmError {
    /// The engine could not be created.
    #[error("cannot start the WebAssembly engine")]
    Engine {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// No runner is configured, so no module can be loaded.
    #[error("no runner is set up, so no module can be loaded")]
    NoRunner,
    /// A module's compiled code was in the cache when the process started, but is gone now.
    #[error("the module's compiled code was removed or altered; the next start compiles it again")]
    CodeGone,
    /// A thread could not be started.
    #[error("cannot start a {thread} thread")]
    Thread {
        /// The thread's name.
        thread: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The module is too large.
    #[error("the module has {bytes} bytes; at most {limit} are allowed")]
    ModuleTooLarge {
        /// The module's size in bytes.
        bytes: usize,
        /// The greatest allowed size, in the same unit.
        limit: usize,
    },
    /// The module is not valid for this engine.
    #[error("cannot compile the module")]
    Compile {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// The compilation of the module exceeds a limit for foreign modules.
    #[error("compiling the module takes more than {limit}")]
    CompileLimit {
        /// The limit that is exceeded.
        limit: String,
    },
    /// The process that compiles foreign modules failed.
    #[error("cannot compile the module in a separate process: {step}")]
    Compiler {
        /// The step that failed.
        step: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// An earlier start could not compile the module, so this start does not try again.
    #[error(
        "it could not be compiled at an earlier start: {reason} (to try again, remove `modules/{digest}.refused` in the state folder)"
    )]
    RefusedBefore {
        /// The reason of that failure.
        reason: String,
        /// The module's digest.
        digest: super::ModuleDigest,
    },
    /// The code from the process that compiles foreign modules cannot be loaded. The module needs more memories or
    /// larger tables than allowed, or the compiling program has another version.
    #[error("the compiled module cannot be loaded")]
    Load {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// No program is configured to compile foreign modules.
    #[error(
        "no program is set up to compile foreign modules; name a `portcullis` as the envelope's `compiler`"
    )]
    NoCompiler,
    /// The module imports a function that guests do not get.
    #[error("cannot link the module")]
    Link {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// The module's answer to `describe` cannot be used.
    #[error("the module does not describe itself: {reason}")]
    Describe {
        /// The fault of the answer.
        reason: String,
    },
    /// A part of the module's answer is too large.
    #[error("{part} is {size} long; at most {limit} are accepted")]
    Declares {
        /// The part that is too long or has too many entries.
        part: String,
        /// The part's size: the bytes of a text, or the number of entries of a list.
        size: usize,
        /// The greatest allowed size, in the same unit.
        limit: usize,
    },
    /// The confinement of the worker thread could not be proven before the call.
    #[error("cannot confine the worker thread")]
    Confine(#[from] portcullis_confine::ConfineError),
    /// The thread could not confine itself at its start, so it serves no call.
    #[error("the worker thread is not confined: {reason}")]
    Unconfined {
        /// The causes, outermost first.
        reason: String,
    },
    /// A grant names a mount that was not opened.
    #[error("the grant names mount `{mount}`, which this runner does not have")]
    UnknownMount {
        /// The mount's name.
        mount: String,
    },
    /// A mount's directory handle cannot be used.
    #[error("cannot hand mount `{mount}` to the guest")]
    Preopen {
        /// The mount's name.
        mount: String,
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// No worker is available: too many calls run concurrently, or threads are stuck in the kernel.
    #[error("no worker thread for profile mounts `{mounts}`: {stuck_threads} threads are stuck")]
    Exhausted {
        /// The pool's mounts.
        mounts: String,
        /// The number of threads that are stuck.
        stuck_threads: usize,
    },
    /// The worker thread ended without an answer.
    #[error("the worker thread ended without an answer")]
    WorkerLost,
    /// The thread ran past the deadline in a system call that cannot be interrupted.
    #[error("the worker thread is stuck in the kernel")]
    Stuck,
    /// The engine failed, and the guest is not the cause.
    #[error("the WebAssembly engine failed")]
    Runtime {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// The module cache cannot be used.
    #[error("cannot open the module cache")]
    Cache {
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}
