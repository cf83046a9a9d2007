//! Runs guest tools: WASI preview 1 modules, each call in a fresh store on a thread that the kernel
//! confines.
//!
//! In reading order:
//!
//! | file | what it is |
//! |---|---|
//! | `runner.rs` | the entry point |
//! | `pool.rs`, `worker.rs` | finds a thread for a call; the thread, confined and proven |
//! | `guest.rs`, `control.rs` | one call on the thread; its deadline and cancellation |
//! | `module.rs`, `declarations.rs` | a module with its code and linking; the check of what it says about itself |
//! | `engine.rs`, `ticker.rs`, `limiter.rs` | the engine; the thread of its epoch; bounds on memories and tables |
//! | `preview1.rs`, `memory.rs` | the WASI functions in place of the stock ones; access to a guest's memory |
//! | `fs.rs`, `fs/`, `fs_result.rs` | judges a guest's paths; its verdicts |
//! | `readdir.rs`, `poll.rs` | listings and waits of guests |
//! | `protection.rs`, `repository.rs` | names that a guest must not see or write; files of Git repositories |
//! | `permissions.rs` | keeps permissions on a rename |
//! | `streams.rs`, `stdio.rs`, `listener.rs` | the standard streams; the guest's frames; progress for an observer |
//! | `transfer.rs`, `transfer/`, `transfer_reader.rs` | bytes from one guest to another |
//! | `http.rs`, `host_answer.rs` | requests of guests; the wait for an answer of the host |
//! | `locks.rs`, `path_locks.rs` | the locks that guests ask for; locks of paths between processes |
//! | `mount_use.rs`, `before_change.rs` | which mounts a guest has used; records a path's state before the guest changes it |
//! | `mounts.rs` | opens the folders that calls can be granted |
//! | `hard_links.rs`, `hard_links/` | finds files that have names elsewhere |
//! | `cache.rs`, `compiler.rs`, `compiler_child.rs` | compiled modules on disk; the compilation of foreign modules |
//! | `fault.rs` | the errors |
#![deny(unsafe_code)]

mod before_change;
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
pub mod hard_links;
mod host_answer;
mod http;
mod limiter;
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

pub use before_change::{BeforeChangeFn, ChangeNotRecorded, GuestChangeScope};
pub use compiler::CompileLimits;
pub use compiler_child::{compile_from_stdin, is_compiler};
pub use control::CallResource;
pub use fault::{GuestFault, WasmError};
pub use fs::MountTouches;
pub use fs_result::Violation;
pub use guest::GuestReport;
pub use http::{HttpOperation, HttpOperationSender, HttpReply};
pub use listener::{Listener, StreamFrame};
pub use module::{EmbeddedModule, GuestModule, MAX_MODULE_BYTES, ModuleDigest};
pub use mount_use::{BeforeUse, MountRefusal, MountUse};
pub use runner::{GuestJob, HostWasmToolRunner, RunnerConfig};
pub use transfer::{Transfer, TransferEndpoint};

use transfer::ChunkSink;
