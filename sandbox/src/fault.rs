//! How a guest can fail, and how the runner itself can: two enums for two audiences.

use std::time::Duration;

use portcullis_types::{ToolError, ToolErrorKind};
use thiserror::Error;

/// What an author does instead of writing to a tool's standard output.
pub(super) const TO_SAY_SOMETHING: &str = "standard output carries frames alone, so there is no `println!` in a tool: write with `eprintln!`, or report with `ctx.progress`";

/// How a guest broke off. Each has a stable code; none of them harms the runner.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum GuestFault {
    /// It ran until its deadline.
    #[error("the tool did not finish within {limit:?}")]
    Timeout {
        /// The time it had.
        limit: Duration,
    },
    /// The caller gave up.
    #[error("the call was cancelled")]
    Cancelled,
    /// It wanted more memory than it may have, and broke off.
    #[error("the tool needs more than its {limit_bytes} bytes of memory")]
    MemoryLimit {
        /// What all its memories may have together.
        limit_bytes: usize,
    },
    /// It wanted larger tables than it may have, and broke off.
    #[error("the tool needs larger tables than it may have")]
    TableLimit,
    /// It recursed too deeply.
    #[error("the tool exhausted its stack")]
    StackOverflow,
    /// A frame on its standard output was too long.
    #[error("the tool wrote a frame of more than {limit_bytes} bytes")]
    FrameTooLarge {
        /// How long that frame may be.
        limit_bytes: usize,
    },
    /// A line of its standard output was no frame.
    #[error("the tool wrote a line that is no frame: {reason}")]
    MalformedFrame {
        /// What is wrong with it.
        reason: String,
    },
    /// It ended without a result.
    #[error("the tool ended without a result")]
    NoFinalFrame,
    /// It wrote on after its result.
    #[error("the tool wrote more after its result; {TO_SAY_SOMETHING}")]
    OutputAfterFinalFrame,
    /// It wrote more frames than anybody reads.
    #[error("the tool wrote more than {limit} progress and update frames")]
    TooManyFrames {
        /// How many there may be.
        limit: usize,
    },
    /// It sent bytes, though its call is no end of a transfer.
    #[error("the tool sent bytes that nobody asked for")]
    UnwantedChunk,
    /// It sent more than one transfer passes on.
    #[error("the tool sent more than {limit_bytes} bytes")]
    TransferTooLarge {
        /// How much it may send.
        limit_bytes: u64,
    },
    /// It ended with an exit code other than 0.
    #[error("the tool ended with exit code {code}")]
    ExitCode {
        /// The code.
        code: i32,
    },
    /// It trapped.
    #[error("the tool crashed: {reason}")]
    Trap {
        /// Which trap.
        reason: String,
    },
}

impl GuestFault {
    /// The stable code of the fault.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::Timeout { .. } => "timeout",
            Self::Cancelled => "cancelled",
            Self::MemoryLimit { .. } => "memory_limit",
            Self::TableLimit => "table_limit",
            Self::StackOverflow => "stack_overflow",
            Self::FrameTooLarge { .. } => "frame_too_large",
            Self::MalformedFrame { .. } => "malformed_frame",
            Self::NoFinalFrame => "no_final_frame",
            Self::OutputAfterFinalFrame => "output_after_final_frame",
            Self::TooManyFrames { .. } => "too_many_frames",
            Self::UnwantedChunk => "unwanted_chunk",
            Self::TransferTooLarge { .. } => "transfer_too_large",
            Self::ExitCode { .. } => "guest_exit",
            Self::Trap { .. } => "guest_trap",
        }
    }

    /// The kind of error that a caller gets for it.
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

/// Why the runner could not run a guest. For the operator; a model learns only that it is unavailable.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WasmError {
    /// The engine could not be made.
    #[error("cannot start the WebAssembly engine")]
    Engine {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// There is no runner to load a module with.
    #[error("no runner is set up, so no module can be loaded")]
    NoRunner,
    /// The code of a module was in the cache when the process started, and is not any more.
    #[error("the module's compiled code was removed or altered; the next start compiles it anew")]
    CodeGone,
    /// A thread could not be started.
    #[error("cannot start a {what} thread")]
    Thread {
        /// Which thread.
        what: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// The module is too large.
    #[error("the module has {bytes} bytes; at most {limit} are allowed")]
    ModuleTooLarge {
        /// How large it is.
        bytes: usize,
        /// How large it may be.
        limit: usize,
    },
    /// The module is not one that this engine runs.
    #[error("cannot compile the module")]
    Compile {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// Compiling the module takes more than a module from outside may take.
    #[error("compiling the module takes more than {limit}")]
    CompileLimit {
        /// What it exceeds.
        limit: String,
    },
    /// The process that compiles modules from outside failed.
    #[error("cannot compile the module in a process of its own: {what}")]
    Compiler {
        /// What happened to it.
        what: &'static str,
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
    /// An earlier start could not compile the module, and would not now.
    #[error(
        "it could not be compiled at an earlier start: {reason} (to try again, remove `modules/{digest}.refused` in the state folder)"
    )]
    RefusedBefore {
        /// Why it could not.
        reason: String,
        /// The module.
        digest: super::ModuleDigest,
    },
    /// What the process that compiles modules from outside made cannot be loaded here: the module needs more memories
    /// or larger tables than a module may have, or that program is of another version.
    #[error("the compiled module cannot be loaded")]
    Load {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// There is nobody to compile a module from outside.
    #[error(
        "no program is set up to compile modules from outside; name a `portcullis` as the envelope's `compiler`"
    )]
    NoCompiler,
    /// The module wants what no guest gets.
    #[error("cannot link the module")]
    Link {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// The module's answer to `describe` cannot be used.
    #[error("the module does not describe itself: {reason}")]
    Describe {
        /// What is wrong with it.
        reason: String,
    },
    /// The module says more of its tools than is taken.
    #[error("{what} is {size} long; at most {limit} are taken")]
    Declares {
        /// What is too long, or too many.
        what: String,
        /// How long it is, in bytes, or how many there are.
        size: usize,
        /// How much is taken.
        limit: usize,
    },
    /// The thread that should serve the call is not proven to be confined.
    #[error("cannot confine the worker thread")]
    Confine(#[from] portcullis_confine::ConfineError),
    /// The thread could not confine itself when it started, and so serves nothing.
    #[error("the worker thread is not confined: {reason}")]
    Unconfined {
        /// The causes, outermost first.
        reason: String,
    },
    /// A grant names a mount that was not opened.
    #[error("the grant names mount `{mount}`, which this runner does not have")]
    UnknownMount {
        /// The mount.
        mount: String,
    },
    /// A mount's directory handle cannot be used.
    #[error("cannot hand mount `{mount}` to the guest")]
    Preopen {
        /// The mount.
        mount: String,
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// No more room: too many calls at once, or threads that are stuck in the kernel.
    #[error("no worker thread for profile mounts `{mounts}`: {stuck} threads are stuck")]
    Exhausted {
        /// The pool's mounts.
        mounts: String,
        /// How many threads do not come back.
        stuck: usize,
    },
    /// The worker thread ended without an answer.
    #[error("the worker thread ended without an answer")]
    WorkerLost,
    /// The thread went on past the deadline, in a system call that cannot be interrupted.
    #[error("the worker thread is stuck in the kernel")]
    Stuck,
    /// The engine failed in a way that is not the guest's doing.
    #[error("the WebAssembly engine failed")]
    Runtime {
        /// The engine's reason.
        source: wasmtime::Error,
    },
    /// The compiled form could not be kept.
    #[error("cannot use the module cache")]
    Cache {
        /// The system's reason.
        #[source]
        source: std::io::Error,
    },
}
