//! Settings that a serving process makes for itself at its start.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, getrlimit, set_dumpable_behavior, setrlimit};

/// Makes this process's memory, with its keys and tokens, unreadable to others: no core dump is written, and
/// other processes of its user can neither read nor trace it (`PR_SET_DUMPABLE`). This holds until the
/// process executes another program. Core dumps of the programs that it starts are switched off too
/// (`RLIMIT_CORE`), where that limit can be set.
///
/// Afterwards the process's files below `/proc` belong to root. An ordinary user's process can no longer open
/// some of them, such as its own `/proc/self/pagemap`, which makes clearing a guest's memory cheaper: a
/// program that runs guests calls `HostWasmToolRunner::has_pagemap_scan` of `portcullis-tools` before this,
/// which opens it. Call this after
/// [`crate::enter_if_session`]: a session needs such files to become a user in its own namespace.
///
/// # Errors
/// The system's error. The process should not go on then.
pub fn conceal_memory() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // Inherited by the programs that this one starts. Errors are ignored: sessions set and prove the limit
    // themselves, so on a machine that refuses it the session's error names the limit, and this process does
    // not end without a reason.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    Ok(())
}

/// Raises this process's soft limit of open descriptors to its hard limit (`setrlimit(2)`, `RLIMIT_NOFILE`).
/// The usual 1024 are meant for programs that wait with `select`; sessions, their commands and jobs take
/// about a dozen each, and a guest may have some hundred. Sessions have a separate limit.
///
/// If this fails, the old limit holds, and operations fail once the descriptors run out.
pub fn take_all_descriptors() {
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum });
}
