//! A connection to a judged address, with TLS where the scheme asks for it.
//!
//! A connection serves one request. A pool would stand here, and give a connection to the grant that opened it
//! only: which addresses are good is that grant's judgement.

use std::{io, net::SocketAddr, sync::Arc};

use rustls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    time::timeout,
};
use tokio_rustls::TlsConnector;

use crate::{
    FetchError, RequestLimits,
    address::JudgedAddresses,
    target::{Scheme, Target},
};

/// An open connection. Dropping it closes it.
pub(crate) struct Connection {
    pub(crate) address: SocketAddr,
    pub(crate) stream: Box<dyn Stream>,
}

/// TCP, or TLS over it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

impl Connection {
    /// Dials the addresses one after the other until one accepts.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn open(
        target: &Target,
        addresses: &JudgedAddresses,
        tls: &Arc<ClientConfig>,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let (address, tcp) = dial(target, addresses, limits).await?;
        let stream: Box<dyn Stream> = match target.scheme {
            Scheme::Http => Box::new(tcp),
            Scheme::Https => {
                let agreed = TlsConnector::from(Arc::clone(tls)).connect(target.server_name()?, tcp);
                match timeout(limits.connect, agreed).await {
                    Ok(Ok(stream)) => Box::new(stream),
                    Ok(Err(source)) => {
                        return Err(FetchError::TlsFailed { host: target.host.clone(), source });
                    }
                    Err(_elapsed) => return Err(too_late(target, limits)),
                }
            }
        };
        Ok(Self { address, stream })
    }
}

/// Connects to the addresses one after the other until one accepts.
pub(crate) async fn dial(
    target: &Target,
    addresses: &JudgedAddresses,
    limits: &RequestLimits,
) -> Result<(SocketAddr, TcpStream), FetchError> {
    let mut last = too_late(target, limits);
    for address in addresses.iter() {
        match timeout(limits.connect, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => {
                // A request is one write, and must not wait for more. If the kernel refuses, it is only slower.
                let _slower = stream.set_nodelay(true);
                return Ok((address, stream));
            }
            // Landlock's refusal.
            Ok(Err(source)) if source.kind() == io::ErrorKind::PermissionDenied => {
                return Err(FetchError::PortClosed { port: target.port });
            }
            Ok(Err(source)) => {
                last = FetchError::ConnectFailed { host: target.host.clone(), address, source };
            }
            Err(_elapsed) => last = too_late(target, limits),
        }
    }
    Err(last)
}

fn too_late(target: &Target, limits: &RequestLimits) -> FetchError {
    FetchError::ConnectTimeout { host: target.host.clone(), limit: limits.connect }
}
