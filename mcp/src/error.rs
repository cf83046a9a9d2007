//! [`McpError`]: why a server cannot serve. Its messages are for the operator.

use std::{io, path::PathBuf, sync::Arc};

use rmcp::service::ServerInitializeError;
use thiserror::Error;

use crate::TokenFileError;

/// Why a server cannot start, or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum McpError {
    /// A tool cannot be described in the protocol.
    #[error("a tool cannot be described to clients")]
    Listing {
        /// The problem with the tool's description.
        #[source]
        source: serde_json::Error,
    },
    /// The system provided no random bits.
    #[error("cannot read random bytes from the system")]
    Random {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The standard streams cannot be taken over, or have broken.
    #[error("cannot serve on standard input and output")]
    Streams {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The client did not begin a session.
    #[error("the client did not begin a session")]
    Initialize {
        /// The failure of the handshake.
        #[source]
        source: Arc<ServerInitializeError>,
    },
    /// The token cannot be read or stored.
    #[error("cannot read or create the token in `{}`", path.display())]
    Token {
        /// The token file's path.
        path: PathBuf,
        /// The problem with the file.
        #[source]
        source: TokenFileError,
    },
}
