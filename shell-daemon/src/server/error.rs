//! What keeps a daemon from being there. For operators: texts hold host paths.

use std::{io, path::PathBuf};

use portcullis_confine::{ConfineError, mounts::MountError};
use portcullis_policy::PolicyError;

use super::Unproven;

/// Why a daemon does not start, or ended otherwise than it was told to.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DaemonError {
    /// A value of the configuration cannot be.
    #[error("the daemon's {setting} {problem}")]
    Config {
        /// Which.
        setting: &'static str,
        /// What is wrong with it.
        problem: String,
    },
    /// The state folder cannot hold what sessions try to read.
    #[error("prepare the state folder")]
    State {
        /// The cause.
        #[source]
        source: ConfineError,
    },
    /// There is no session of the posture that is asked for.
    #[error("start a session")]
    Session {
        /// The cause.
        #[source]
        source: Unproven,
    },
    /// The mounts cannot be opened.
    #[error("open the mounts")]
    Mounts {
        /// The cause.
        #[source]
        source: MountError,
    },
    /// A policy's text cannot be had.
    #[error("the policy {} cannot be read", path.display())]
    PolicyFile {
        /// Its place.
        path: PathBuf,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The policy is none.
    #[error("the policy cannot be used")]
    Policy {
        /// Every fault.
        #[source]
        source: PolicyError,
    },
    /// The policy has no shell.
    #[error("the policy has no shell: {remedy}")]
    NoShell {
        /// What gives it one.
        remedy: &'static str,
    },
    /// The token cannot be used.
    #[error("the token {problem}")]
    Token {
        /// What is wrong with it.
        problem: &'static str,
    },
    /// The token's file cannot be used.
    #[error("the token's file {} {problem}", path.display())]
    TokenFile {
        /// Its place.
        path: PathBuf,
        /// What is wrong with it.
        problem: String,
    },
    /// The socket cannot be made at its place.
    #[error("the socket {} {problem}", path.display())]
    Socket {
        /// Its place.
        path: PathBuf,
        /// What is wrong.
        problem: String,
    },
    /// What an embedded daemon was given is not what it needs.
    #[error("the embedded daemon's setup {problem}")]
    Setup {
        /// What is wrong with it.
        problem: String,
    },
    /// The operating system refused something that any daemon needs.
    #[error("{operation}")]
    System {
        /// What was tried.
        operation: &'static str,
        /// The cause.
        #[source]
        source: io::Error,
    },
    /// The server ended by itself.
    #[error("serve")]
    Serve {
        /// The cause.
        #[source]
        source: tonic::transport::Error,
    },
}
