//! What keeps a server from serving. For the operator.

use std::{io, net::SocketAddr, path::PathBuf, sync::Arc};

use rmcp::service::ServerInitializeError;
use thiserror::Error;

/// Why a server does not serve, or no longer.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum McpError {
    /// A tool cannot be described in the protocol.
    #[error("a tool cannot be described to clients")]
    Listing {
        /// What is wrong with its description.
        #[source]
        source: serde_json::Error,
    },
    /// The system gives no random bits.
    #[error("no random bits: {reason}")]
    Random {
        /// The system's reason.
        reason: String,
    },
    /// The standard streams cannot be had or have broken.
    #[error("cannot serve on standard input and output")]
    Streams {
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The client did not begin a session.
    #[error("the client did not begin a session")]
    Initialize {
        /// What it did instead.
        #[source]
        source: Arc<ServerInitializeError>,
    },
    /// The address cannot be listened at.
    #[error("cannot listen at {address}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// An address that others can reach was not asked for.
    #[error(
        "{address} can be reached from other machines, and there is no encryption: give --allow-remote if that is wanted"
    )]
    Remote {
        /// The address.
        address: SocketAddr,
    },
    /// The token cannot be read or kept.
    #[error("cannot use the token in `{}`", path.display())]
    Token {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        #[source]
        source: io::Error,
    },
}
