//! The hidden entry by which this program becomes a session.

use std::process::ExitCode;

use crate::inside;

/// Becomes a session if this process was started as one, and returns the session's exit code. Call it before
/// anything else: a session must have a single thread, and its standard input is the daemon's socket.
#[must_use]
pub fn enter_if_session() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == ENTRY && arguments.next().is_none()).then(inside::run)
}

/// The one argument of a session's process. It grants nothing: a session gets all its rights over its socket.
pub(crate) const ENTRY: &str = "portcullis-session";
