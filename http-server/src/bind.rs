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

/// The machines that may reach a server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reach {
    /// Only this machine: the address must be one of the loopback interface.
    ThisMachine,
    /// Any machine that can reach the address.
    AnyMachine,
}

impl Reach {
    /// Any machine if other machines are allowed, else this machine only.
    #[must_use]
    pub fn allowing_remote(is_allowed: bool) -> Self {
        if is_allowed { Self::AnyMachine } else { Self::ThisMachine }
    }
}

/// Listens at an address. An address that other machines can reach needs [`Reach::AnyMachine`].
///
/// # Errors
/// [`BindError`] if the address is reachable from other machines, which was not allowed, or if the system
/// refuses to listen there.
///
/// # Cancellation
/// Dropping the future has no effect.
pub async fn bind(address: SocketAddr, reach: Reach) -> Result<TcpListener, BindError> {
    if !address.ip().is_loopback() && reach == Reach::ThisMachine {
        return Err(BindError::Remote { address });
    }
    TcpListener::bind(address).await.map_err(|source| BindError::Listen { address, source })
}
