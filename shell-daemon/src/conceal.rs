//! What other processes of the same user may learn of a process that holds secrets.

use std::io;

use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit};

/// Keeps this process's memory, with the keys and tokens in it, to itself: no core dump is written of it, and other
/// processes of its user may neither read it nor trace it (`PR_SET_DUMPABLE`). That holds until a program is started;
/// of what is started here no core dump is written either (`RLIMIT_CORE`), where that limit can be set.
///
/// Its files below `/proc` belong to root from then on. An ordinary user's process cannot open some of them any more,
/// not even its own `/proc/self/pagemap`, by which clearing a guest's memory is cheaper: a program that runs guests has
/// `HostWasmToolRunner::has_pagemap_scan` of `portcullis-tools` open it before. To be called after [`crate::enter_if_session`]: a session becomes a user in a
/// namespace of its own by such files.
///
/// # Errors
/// What the system says. Then the process should not go on.
pub fn conceal_memory() -> io::Result<()> {
    set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    // For the programs that this one starts. Sessions set it themselves and prove it, so a machine that refuses it here
    // gets a session's refusal, which names the limit, and no process that ends without a word.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    Ok(())
}
