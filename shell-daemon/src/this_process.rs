//! Settings that a serving process applies to itself at its start.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Makes this process's memory, with its keys and tokens, unreadable to other processes. No core dump is written, and
/// other processes of the same user can neither read nor trace this process (`PR_SET_DUMPABLE`). This holds until the
/// process executes another program. Core dumps of the programs that this process starts are also switched off
/// (`RLIMIT_CORE`), where that limit can be set.
///
/// After this call, the process's files below `/proc` belong to root, and an ordinary user's process can no longer open
/// some of them. The order of calls at the start therefore matters:
///
/// - Call [`crate::enter_if_session`] before this: a session needs such files to become a user in its own namespace.
/// - A program that runs guests calls `HostWasmToolRunner::has_pagemap_scan` of `portcullis-tools` before this. That
///   call opens the process's own `/proc/self/pagemap`, which makes clearing a guest's memory cheaper.
///
/// # Errors
/// The system's error. The process should then not continue.
pub fn conceal_memory() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Started programs inherit this limit. Ignore an error: sessions set and prove the limit themselves, so on a
    // machine that refuses the limit, a session's error names it.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    Ok(())
}

/// Raises this process's soft limit of open descriptors to its hard limit (`setrlimit(2)`, `RLIMIT_NOFILE`). The usual
/// limit of 1024 is for programs that wait with `select`. Sessions, commands and jobs need about a dozen descriptors
/// each, and a guest may have some hundred. Sessions have a separate limit.
///
/// If this fails, the old limit stays, and operations fail when the descriptors run out.
pub fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
