//! Opens connections to a model: directly, through a proxy's tunnel, or to a proxy that forwards plain
//! requests.

use std::{
    error::Error,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Uri};
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_rustls::HttpsConnector;
use hyper_util::{
    client::legacy::connect::{Connected, Connection, proxy::Tunnel},
    rt::TokioIo,
};
use portcullis_egress::Dialler;
use rustix::net::sockopt;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tower_service::Service;
use url::Url;

/// Interval of TCP keepalive probes, which detect a dead peer.
const KEEPALIVE: Duration = Duration::from_secs(15);

/// After this number of unanswered probes the connection ends.
const KEEPALIVE_TRIES: u32 = 3;

/// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`, tcp(7)).
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Opens connections, each within a timeout.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    route: ProviderRoute,
    /// The timeout of the whole connect: name lookup, connection, tunnel, TLS.
    timeout: Duration,
}

#[derive(Debug, Clone)]
enum ProviderRoute {
    Direct(TcpOrTlsConnector),
    Tunnel(HttpsConnector<Tunnel<TcpOrTlsConnector>>),
    /// Connects to the proxy for every host.
    ForwardProxy(TcpOrTlsConnector, Uri),
}

/// TCP, with TLS for an `https` address.
type TcpOrTlsConnector = HttpsConnector<TcpConnector>;

impl Connector {
    /// Creates a connector that connects to the requested host itself.
    pub(super) fn direct(tcp: TcpConnector, tls: Arc<ClientConfig>, timeout: Duration) -> Self {
        Self { route: ProviderRoute::Direct(HttpsConnector::from((tcp, tls))), timeout }
    }

    /// Creates a connector that uses a proxy's tunnel. The proxy sees only host and port.
    pub(super) fn tunnel(
        tcp: TcpConnector,
        proxy: Uri,
        authorization: Option<HeaderValue>,
        tls: Arc<ClientConfig>,
        timeout: Duration,
    ) -> Self {
        let mut tunnel = Tunnel::new(proxy, HttpsConnector::from((tcp, Arc::clone(&tls))));
        if let Some(value) = authorization {
            tunnel = tunnel.with_auth(value);
        }
        Self { route: ProviderRoute::Tunnel(HttpsConnector::from((tunnel, tls))), timeout }
    }

    /// Creates a connector to a proxy that reads the destination from each request.
    pub(super) fn forward_proxy(
        tcp: TcpConnector,
        proxy: Uri,
        tls: Arc<ClientConfig>,
        timeout: Duration,
    ) -> Self {
        Self { route: ProviderRoute::ForwardProxy(HttpsConnector::from((tcp, tls)), proxy), timeout }
    }
}

/// Opens TCP connections with the dialler. All of this crate's connections to models are opened here.
#[derive(Debug, Clone)]
pub(super) struct TcpConnector(Arc<Dialler>);

impl TcpConnector {
    pub(super) fn new(dialler: Dialler) -> Self {
        Self(Arc::new(dialler))
    }
}

impl Service<Uri> for TcpConnector {
    type Response = TokioIo<TcpStream>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, BoxError>> + Send>>;

    fn poll_ready(&mut self, _cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let dialler = Arc::clone(&self.0);
        Box::pin(async move {
            let stream = dialler.dial(Url::parse(&destination.to_string())?).await?;
            prepare(&stream)?;
            Ok(TokioIo::new(TcpStream::from_std(stream)?))
        })
    }
}

/// Sets the options that make the kernel notice a dead peer.
fn prepare(stream: &std::net::TcpStream) -> io::Result<()> {
    // The conversion cannot fail: 30,000 ms.
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    sockopt::set_tcp_user_timeout(stream, unacknowledged)?;
    sockopt::set_socket_keepalive(stream, true)?;
    sockopt::set_tcp_keepidle(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepintvl(stream, KEEPALIVE)?;
    sockopt::set_tcp_keepcnt(stream, KEEPALIVE_TRIES)?;
    Ok(())
}

type BoxError = Box<dyn Error + Send + Sync>;

impl Service<Uri> for Connector {
    type Response = ConnectedStream;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<ConnectedStream, BoxError>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        match &mut self.route {
            ProviderRoute::Direct(route) | ProviderRoute::ForwardProxy(route, _) => route.poll_ready(cx),
            ProviderRoute::Tunnel(route) => route.poll_ready(cx),
        }
    }

    fn call(&mut self, destination: Uri) -> Self::Future {
        let timeout = self.timeout;
        let connecting: Self::Future = match &mut self.route {
            ProviderRoute::Direct(route) => {
                let connecting = route.call(destination);
                Box::pin(async move { Ok(ConnectedStream::new(connecting.await?, RequestTarget::Origin)) })
            }
            ProviderRoute::Tunnel(route) => {
                let connecting = route.call(destination);
                Box::pin(async move { Ok(ConnectedStream::new(connecting.await?, RequestTarget::Origin)) })
            }
            ProviderRoute::ForwardProxy(route, proxy) => {
                let connecting = route.call(proxy.clone());
                Box::pin(
                    async move { Ok(ConnectedStream::new(connecting.await?, RequestTarget::ForwardProxy)) },
                )
            }
        };
        Box::pin(async move {
            let timed_out = |_| BoxError::from(io::Error::from(io::ErrorKind::TimedOut));
            tokio::time::timeout(timeout, connecting).await.map_err(timed_out)?
        })
    }
}

/// An open connection.
pub(super) struct ConnectedStream {
    bytes: Pin<Box<dyn Bytes>>,
    target: RequestTarget,
}

/// Whether the peer is the requested host, or a proxy that reads the destination from each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RequestTarget {
    Origin,
    ForwardProxy,
}

trait Bytes: Read + Write + Send {}

impl<T: Read + Write + Send> Bytes for T {}

impl ConnectedStream {
    fn new(bytes: impl Bytes + 'static, target: RequestTarget) -> Self {
        Self { bytes: Box::pin(bytes), target }
    }
}

impl Connection for ConnectedStream {
    fn connected(&self) -> Connected {
        // For a forwarding proxy, this makes hyper send the absolute URI in the request line.
        Connected::new().proxy(self.target == RequestTarget::ForwardProxy)
    }
}

impl Read for ConnectedStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        self.bytes.as_mut().poll_read(cx, buffer)
    }
}

impl Write for ConnectedStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.bytes.as_mut().poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes.as_mut().poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.bytes.as_mut().poll_shutdown(cx)
    }
}
