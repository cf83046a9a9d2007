//! Confines one OS thread, or a process with all its children, and proves the confinement on that same thread
//! or process.
//!
//! **A worker thread** calls [`confine_current_thread`] before its first job. Landlock leaves it the mounts
//! and no other file. Seccomp leaves it file operations on handles, and refuses new threads, programs,
//! sockets and executable pages. A layer counts as enforced only after a [`CanaryFile`] has shown that it refuses
//! an attempt that worked earlier. The returned [`ProvenThread`] carries the [`Posture`] for audit rows, and
//! repeats the proof before each call.
//!
//! **A thread with [`NetworkRules`]** has the opposite rights: it opens no file, and connects to the granted TCP ports
//! and no others.
//!
//! **A process** of one thread calls [`confine_current_process`] and gets a [`ProcessPosture`]: limits, no
//! privileges, Landlock, and a filter. The filter allows the calls that programs need, but none that reach
//! another process, the network or the kernel's rarer interfaces. Before that, the process may enter new
//! namespaces with [`Namespaces`], with a file tree that contains only the binds.
//!
//! This crate has these limits:
//!
//! - Confining a thread does not confine the process: its other threads stay free. Children of the confined thread
//!   inherit the confinement.
//! - It makes no policy decisions: callers pass mounts and requirements as values.
//! - It does not contain native code that runs in the same process, because all threads share memory and open
//!   descriptors. For a thread, it stops logic bugs of the layer above: an escaped path, a forgotten check.
//!
//! ```no_run
//! use std::{os::fd::OwnedFd, path::Path, sync::Arc, thread};
//! use portcullis_confine::{
//!     CanaryFile, MountAccess, MountRule, Requirement, ThreadConfinement, confine_current_thread,
//! };
//!
//! let canary = CanaryFile::create(Path::new("/var/lib/portcullis"))?;
//! let shared: Arc<OwnedFd> = Arc::new(std::fs::File::open("/srv/agents/shared")?.into());
//! let rules = ThreadConfinement {
//!     landlock: Requirement::Required,
//!     seccomp: Requirement::Required,
//!     mounts: vec![MountRule { dir: shared, access: MountAccess::Read }],
//!     network: None,
//!     canary,
//! };
//! thread::spawn(move || {
//!     let proven = confine_current_thread(&rules).expect("both layers hold");
//!     assert!(std::fs::read("/etc/passwd").is_err());
//!     proven.reprove().expect("both layers still hold");
//! });
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(not(target_os = "linux"))]
compile_error!("this crate needs Landlock, seccomp and namespaces, so it builds only for Linux");

pub mod bounded;
mod canary;
mod cgroup;
mod changes;
mod environment;
mod error;
mod file_tree;
pub mod interrupt;
mod kernel;
mod landlock;
mod limits;
pub mod mounts;
mod namespaces;
mod posture;
pub mod process;
mod process_posture;
mod rules;
mod seccomp;
mod sys;
#[cfg(test)]
mod testing;
mod thread;
pub mod trusted;
pub mod user_folders;

pub use error::ConfineError;
pub use posture::{Evidence, KernelSupport, Layer, LayerStatus, Posture, SyscallOutcome};
pub use process_posture::{LayerReport, ProcessPosture};
pub use rules::{
    GroupLimits, MountAccess, MountRule, NetworkRules, PathAccess, PathRule, ProcessConfinement,
    ProcessLimits, ProcessUser, Requirement, ThreadConfinement,
};

pub use {
    canary::CanaryFile,
    cgroup::{CgroupError, ControlGroup, GroupProof, prove_group},
    changes::{ChangeListener, ChangeOperation, PathArgument, PendingChange},
    environment::take_variable,
    file_tree::{Bind, BuiltTree, FileTree},
    kernel::probe_kernel,
    namespaces::{ListenerError, NamespacedProcess, Namespaces, SeparateUser},
    process::{SingleThreaded, confine_current_process},
    thread::{ProvenThread, confine_current_thread, prove_on_scratch_thread},
};
