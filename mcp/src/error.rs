//! [`McpError`]: why a server cannot serve. The messages are for the operator.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use rmcp::service::ServerInitializeError;
use thiserror::Error;

/// Why a server cannot start, or had to stop.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum McpError {
    /// A tool cannot be described in the protocol.
    #[error("a tool cannot be described to clients")]
    Listing {
        /// The fault of the tool's description.
        #[source]
        source: serde_json::Error,
    },
    /// The system provided no random bits.
    #[error("no randomness is available")]
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
    /// The server cannot listen at the address.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address and port to listen at.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The address is reachable from other machines, which was not allowed.
    #[error(
        "{address} can be reached from other machines, and there is no encryption: give --allow-remote if that is wanted"
    )]
    Remote {
        /// The address and port to listen at.
        address: SocketAddr,
    },
    /// The token cannot be read or stored.
    #[error("cannot use the token in `{}`", path.display())]
    Token {
        /// The token file's path.
        path: PathBuf,
        /// The fault of the file.
        #[source]
        source: io::Error,
    },
}
