//! Runs guest tools: WASI preview 1 modules, each call in a fresh store on a thread confined by the kernel.
//!
//! In reading order: `runner` is the entry point, `pool` finds a thread, `worker` is that thread, and `guest` runs one
//! call on it. `preview1` intercepts the stock WASI functions and asks `fs`, `readdir` and `poll`. `streams` serves the
//! standard streams, and `stdio` reads the guest's frames. `transfer` and `transfer_reader` pass bytes from one guest
//! to another. `http` passes on the requests of guests, and `locks` their questions for the locks of `path_locks`.
//! `mount_use` tells a caller which mounts its guest has used, and `keeper` lets it keep the state of a path before its
//! guest changes the path.
//! `fault` defines the errors. `compiler` and `compiler_child` are the two sides of the compilation of foreign modules.
//! `mounts` opens the folders that calls can be granted, `links` finds files that have names elsewhere, `repository`
//! tells which files belong to a Git repository, and `protection` has the names that a call's guest must not write.
#![deny(unsafe_code)]

mod cache;
mod compiler;
mod compiler_child;
mod control;
mod declarations;
mod engine;
mod fault;
mod fs;
mod fs_result;
mod guest;
mod host_answer;
mod http;
mod keeper;
mod limiter;
pub mod links;
mod listener;
mod locks;
mod memory;
mod module;
mod mount_use;
pub mod mounts;
mod path_locks;
mod permissions;
mod poll;
mod pool;
mod preview1;
mod protection;
mod readdir;
pub mod repository;
mod runner;
mod stdio;
mod streams;
mod ticker;
mod transfer;
mod transfer_reader;
mod worker;

pub use compiler::CompileLimits;
pub use compiler_child::{compile_from_stdin, is_compiler};
pub use control::CallResource;
pub use fault::{GuestFault, WasmError};
pub use fs::MountTouches;
pub use fs_result::Violation;
pub use guest::GuestReport;
pub use http::{HttpOperation, HttpPort, HttpReply};
pub use keeper::{ChangeKeeper, GuestChange, KeepRefused};
pub use listener::{Listener, StreamFrame};
pub use module::{EmbeddedModule, GuestModule, MAX_MODULE_BYTES, ModuleDigest};
pub use mount_use::{BeforeUse, MountRefusal, MountUse};
pub use runner::{GuestJob, HostWasmToolRunner, RunnerConfig};
pub use transfer::{Transfer, TransferEnd};

use transfer::ChunkSink;
