//! The sidecar: sessions for clients that connect.
//!
//! ```text
//! standalone   the program: command line, signals, a listener …
//! embedded     … or one connection that was inherited
//! └ serve      accepts, and lets tonic speak HTTP/2
//!   ├ connection  one client: its sessions and commands, which end with it
//!   ├ auth        token and version, checked before anything else is read
//!   └ calls       the calls of the protocol
//!     ├ creation        the specification of a new session
//!     ├ session_thread  a session and the thread that uses it
//!     ├ command         a running command, and the stream of its events
//!     ├ forwarder       the connections of a session, accepted here …
//!     ├ session_egress  … and made on confined threads
//!     └ connections     the text about them for the client
//! ```

mod config;
mod error;
mod sidecar;

mod embedded;
mod from_policy;
mod logs;
mod serve;
mod socket;
mod standalone;

mod auth;
mod connection;
mod health;
mod token;

mod calls;

mod command;
mod connections;
mod creation;
mod forwarder;
mod input;
mod refusal;
mod report;
mod session_egress;
mod session_thread;

pub use config::{ServiceLimits, SessionConfig, SidecarMount, SidecarNetwork, SidecarServerConfig};
pub use embedded::{EMBEDDED_ENTRY, EmbeddedSetup, embedded_main, enter_if_embedded};
pub use error::{SetupFault, SidecarServerError};
pub use health::ProofError;
pub use logs::log_filter;
pub use serve::serve;
pub use standalone::shelld_main;
pub use token::Token;
