//! The session's own processes: guard, session-init, a command-init for each command, and bash.
//!
//! ```text
//! guard            started by the sidecar, not confined; outlives the session to kill its remains
//! └ session-init   confined, the first of its process namespace; waits for commands, keeps the last good
//!   │              snapshot
//!   └ command-init one a command; adopts orphans, reports, ends after its last descendant
//!     └ bash
//! ```
//!
//! The guard is this program, started again. Session-init and command-init are its forks without an `exec`. Each has
//! one thread.

mod command;
mod confine;
mod environment;
mod guard;
mod script;
mod session_init;
mod snapshot;

use std::process::ExitCode;

/// Becomes a session if this process was started as one, and returns the session's exit code. Call this before anything
/// else: a session must have a single thread, and its standard input is the sidecar's socket.
#[must_use]
pub fn enter_if_session() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == SESSION_ARGUMENT && arguments.next().is_none()).then(guard::run)
}

/// The one argument of a session's process. It grants nothing: a session gets all its rights over its socket.
pub(crate) const SESSION_ARGUMENT: &str = "portcullis-session";
