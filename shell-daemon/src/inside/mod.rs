//! The session's own processes: guard, session-init, a command-init for each command, and bash.
//!
//! ```text
//! guard            started by the daemon, not confined; outlives the session to kill its remains
//! └ session-init   confined, the first of its process namespace; waits for commands, keeps the last good
//!   │              snapshot
//!   └ command-init one a command; adopts orphans, reports, ends after its last descendant
//!     └ bash
//! ```
//!
//! All except bash are forks of this program without an `exec`, and each has one thread.

mod command;
mod confine;
mod environment;
mod guard;
mod script;
mod session_init;
mod snapshot;

pub(crate) use guard::run;
