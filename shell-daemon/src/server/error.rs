//! The errors that keep a sidecar from running. Their messages are for operators, because they contain host paths.

use std::{io, path::PathBuf};

use portcullis_confine::{ConfineError, mounts::MountError};
use portcullis_policy::PolicyError;

use super::ProofError;

/// The reason why a sidecar did not start, or why it ended without a request to stop.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SidecarServerError {
    /// A configuration value is invalid.
    #[error("the sidecar's {setting} {problem}")]
    Config {
        /// The setting's name.
        setting: &'static str,
        /// The problem, worded to follow its subject in the message.
        problem: String,
    },
    /// The canary cannot be made in the state folder.
    #[error("cannot prepare the state folder")]
    State {
        /// The failure to make the canary.
        #[source]
        source: ConfineError,
    },
    /// No session of the required posture can be started.
    #[error("cannot start a session")]
    Session {
        /// The failure of the trial session.
        #[source]
        source: ProofError,
    },
    /// The mounts cannot be opened.
    #[error("cannot open the mounts")]
    Mounts {
        /// The error of the mount at fault.
        #[source]
        source: MountError,
    },
    /// A policy's file cannot be read.
    #[error("the policy {} cannot be read", path.display())]
    PolicyFile {
        /// The policy's path.
        path: PathBuf,
        /// The I/O error of reading it.
        #[source]
        source: io::Error,
    },
    /// The policy is invalid.
    #[error("the policy cannot be loaded")]
    Policy {
        /// Every fault.
        #[source]
        source: PolicyError,
    },
    /// The policy grants no shell.
    #[error("the policy has no shell: {remedy}")]
    NoShell {
        /// The setting that would grant a shell.
        remedy: &'static str,
    },
    /// The token cannot be used.
    #[error("the token {problem}")]
    Token {
        /// The problem, worded to follow its subject in the message.
        problem: &'static str,
    },
    /// The token's file cannot be used.
    #[error("the token's file {} {problem}", path.display())]
    TokenFile {
        /// The file's path.
        path: PathBuf,
        /// The problem, worded to follow its subject in the message.
        problem: String,
    },
    /// The socket cannot be made at its path.
    #[error("the socket {} {problem}", path.display())]
    Socket {
        /// The socket's path.
        path: PathBuf,
        /// The problem, worded to follow its subject in the message.
        problem: String,
    },
    /// An embedded sidecar's setup is invalid.
    #[error("the embedded sidecar's setup {fault}")]
    Setup {
        /// The problem.
        fault: SetupFault,
    },
    /// The operating system refused an operation that every sidecar needs.
    #[error("cannot {operation}")]
    System {
        /// The refused operation, worded to follow "cannot" in the message.
        operation: &'static str,
        /// The operation's error.
        #[source]
        source: io::Error,
    },
    /// The server ended on an error.
    #[error("the server failed")]
    Serve {
        /// The error of the transport.
        #[source]
        source: tonic::transport::Error,
    },
}

/// The problem of an embedded sidecar's setup, worded to follow "the setup".
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum SetupFault {
    /// The parent did not pass a socket.
    #[error("cannot be read: descriptor 0 is not a connected Unix stream socket")]
    NoSocket,
    /// The message did not arrive in time.
    #[error("did not arrive within ten seconds")]
    Late,
    /// The parent closed the socket too early.
    #[error("ended before the newline")]
    Incomplete,
    /// The message is not the JSON of a setup. The text is not repeated, because it contains the token.
    #[error("is malformed at byte {column}")]
    Malformed {
        /// The position in the message, counted from 1.
        column: usize,
    },
    /// The message is longer than the limit.
    #[error("is longer than {limit} bytes")]
    TooLong {
        /// The limit, in bytes.
        limit: usize,
    },
}
