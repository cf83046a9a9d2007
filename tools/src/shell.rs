//! `shell_exec`: commands in the sessions of a shell sidecar, which is a separate process.
//!
//! | file | content |
//! |---|---|
//! | `tool.rs` | the registration of [`BashTool`], and one call of it |
//! | `declaration.rs` | the declaration of [`BashTool`] for models |
//! | `backend.rs` | where commands run: in a sidecar's sessions, on the host, or nowhere |
//! | `sidecar.rs` | a connection, and its sessions |
//! | `connect.rs` | how a sidecar is reached or started |
//! | `session.rs` | one session, and one command in it |
//! | `networked.rs` | the sessions that have a network, and the end of a run's sessions |
//! | `outcome.rs` | the outcome of a command, for a model and for people |
//! | `output_forwarder.rs` | forwards output to the caller while it arrives |
//! | `failure.rs` | failures of the shell to run a command |
//!
//! This crate confines and starts no command: the sidecar does.

mod backend;
mod connect;
mod declaration;
mod failure;
mod networked;
mod outcome;
mod output_forwarder;
mod session;
mod sidecar;
mod tool;

pub use backend::{ShellBackend, ShellSource};
pub use connect::{SidecarOptions, StartSidecar, StartedSidecar};
pub use failure::SidecarError;
pub(crate) use networked::{NetworkedSession, NetworkedSessions, end_all, end_all_blocking};
pub use sidecar::{LayerHealth, Sidecar, SidecarHealth};
pub use tool::{BashTool, SHELL_EXEC};
pub(crate) use tool::{ShellCallContext, ShellRun};
