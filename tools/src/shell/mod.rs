//! `shell_exec`: commands in the sessions of a shell sidecar, a process apart from this one.
//!
//! | file | what is in it |
//! |---|---|
//! | `tool.rs` | [`BashTool`], as it is registered, and one call of it |
//! | `backend.rs` | where commands run: in a sidecar's sessions, on the host, nowhere |
//! | `sidecar.rs` | a connection, and the sessions that hang on it |
//! | `connect.rs` | how a sidecar is reached, or started |
//! | `session.rs` | one session, and one command in it |
//! | `outcome.rs` | what came of a command, for a model and for people |
//! | `failure.rs` | what kept the shell from running one |
//!
//! Nothing is confined here, and no command is started: that is the sidecar's.

mod backend;
mod connect;
mod failure;
mod outcome;
mod protocol;
mod session;
mod sidecar;
mod tool;

pub use backend::{ShellBackend, ShellPlace};
pub use connect::{SidecarTerms, StartSidecar, StartedSidecar};
pub use failure::SidecarError;
pub use sidecar::{LayerHealth, Sidecar, SidecarHealth};
pub use tool::{BashTool, SHELL_EXEC};
pub(crate) use tool::{ShellRun, ShellTerms};
