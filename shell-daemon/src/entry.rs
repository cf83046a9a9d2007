//! The hidden way in by which this program becomes a session.

use std::process::ExitCode;

use crate::inside;

/// Becomes a session if this process was started as one, and returns what it ends with. Call it before
/// anything else: a session has one thread, and its standard input is the daemon's.
#[must_use]
pub fn enter_if_session() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    (arguments.next()? == ENTRY && arguments.next().is_none()).then(inside::run)
}

/// The one argument of a session's process. It carries no power: a session gets all it has by its socket.
pub(crate) const ENTRY: &str = "portcullis-session";
