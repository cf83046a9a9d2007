//! [`bind`]: opens a listener. By default, only clients of this machine can reach it.

use std::{io, net::SocketAddr};

use thiserror::Error;
use tokio::net::TcpListener;

/// Why a server cannot listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
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
    #[error("other machines can reach {address} without encryption: pass --allow-remote if that is intended")]
    Remote {
        /// The address and port to listen at.
        address: SocketAddr,
    },
}

/// Listens at an address. An address that other machines can reach must be allowed explicitly.
///
/// # Errors
/// [`BindError`] if the address is reachable from other machines, which was not allowed, or if the system
/// refuses to listen there.
///
/// # Cancellation
/// Dropping the future has no effect.
pub async fn bind(address: SocketAddr, allow_remote: bool) -> Result<TcpListener, BindError> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(BindError::Remote { address });
    }
    TcpListener::bind(address).await.map_err(|source| BindError::Listen { address, source })
}
