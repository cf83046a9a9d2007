//! Confined shells that keep their state between commands, and the *sidecar*, the program that serves them. Documents
//! call it the *sidecar*, because it runs beside one agent.
//!
//! A [`ShellSession`] is its own process tree: this program is started a second time, confines itself and starts one
//! `bash` for each command. Working directory, variables, functions, aliases and options carry over from command to
//! command. Background jobs die with the session. Everything that a command started dies when the command's deadline
//! passes.
//!
//! A session's *posture* is the degree of its confinement. [`SessionSpec::posture`] is the required posture,
//! and [`ShellSession::posture`] is the posture that was reached, with the evidence of each layer. In a
//! session with its own file tree ([`ShellSession::has_own_tree`]) the mounts are at `/NAME`. Otherwise they
//! are at their real paths.
//!
//! The caller decides which folders a session sees, which limits it has and whether a command may run. A session opens
//! no socket that other programs could connect to. A session with a network has one listener, which only the session's
//! own programs reach.
//!
//! A program that starts sessions calls [`enter_if_session`] before anything else:
//!
//! ```no_run
//! use std::process::ExitCode;
//!
//! fn main() -> ExitCode {
//!     if let Some(code) = portcullis_shell_daemon::enter_if_session() {
//!         return code;
//!     }
//!     // … the program itself.
//!     ExitCode::SUCCESS
//! }
//! ```
#![forbid(unsafe_code)]

mod spec;
mod toolchain;

mod hidden;
mod network;
mod posture;
mod protected;
mod session;
mod setup;

mod background;
mod caches;
mod cancel;
mod changes;
mod input;
mod prepared;
mod running;

mod session_process;

mod error;
mod kill_stall;
mod limits;
mod log_line;
mod memory;
mod this_process;
mod tree;
mod watch;
mod wire;

mod server;

pub use background::BackgroundOutput;
pub use cancel::{CancelReceiver, CancelSender};
pub use error::{InputError, ShellError};
pub use input::{CommandInput, InputWriter};
pub use log_line::{Colours, LogLine};
pub use network::SessionNetwork;
pub use posture::SessionPosture;
pub use protected::ProtectedReport;
pub use running::{CommandEnd, Completion, Interruption, OutputChunk, OutputStream};
pub use server::{
    EMBEDDED_ENTRY, EmbeddedSetup, ProofError, ServiceLimits, SessionConfig, SetupFault, SidecarMount,
    SidecarNetwork, SidecarServerConfig, SidecarServerError, Token, embedded_main, enter_if_embedded,
    log_filter, serve, shelld_main,
};
pub use session::{ShellSession, TreeFeature};
pub use session_process::enter_if_session;
pub use spec::{CommandRequest, PostureChoice, SessionMount, SessionSpec};
pub use this_process::{conceal_memory, raise_descriptor_limit};
pub use toolchain::SessionToolchain;
pub use wire::{Ending, StateOutcome};
