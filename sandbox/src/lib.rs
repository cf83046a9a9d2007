//! Runs guest tools: WASI preview 1 modules, each call in a fresh store on a thread confined by the kernel.
//!
//! In reading order: `runner` is the way in; `pool` finds a thread; `worker` is that thread;
//! `guest` runs one call on it; `preview1` stands before the stock WASI functions and asks `fs`,
//! `readdir` and `poll`; `streams` serves the standard streams, `stdio` reads the guest's frames; `transfer`
//! and `inlet` pass bytes from one guest to another; `fault` names what can go wrong. `compiler` and
//! `compiler_child` are the two sides of compiling what comes from outside.

mod cache;
mod compiler;
mod compiler_child;
mod control;
mod declarations;
mod engine;
mod fault;
mod fs;
mod guest;
mod inlet;
mod limiter;
mod memory;
mod mode;
mod module;
mod poll;
mod pool;
mod preview1;
mod readdir;
mod runner;
mod stdio;
mod streams;
mod ticker;
mod transfer;
mod verdict;
mod worker;

pub use compiler::CompileLimits;
pub use compiler_child::{compile_from_stdin, is_compiler};
pub use fault::{GuestFault, WasmError};
pub use module::{GuestModule, MAX_MODULE_BYTES, ModuleDigest};
pub use runner::{HostWasmToolRunner, RunnerConfig};

pub(crate) use guest::GuestReport;
pub(crate) use runner::{GuestJob, Listener, StreamFrame};
pub(crate) use transfer::{Transfer, TransferEnd};
pub(crate) use verdict::Violation;

use transfer::Outlet;
