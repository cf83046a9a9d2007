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

/// Unanswered probes until the connection is given up.
const KEEPALIVE_TRIES: u32 = 3;

/// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`, tcp(7)).
const UNACKNOWLEDGED: Duration = Duration::from_secs(30);

/// Opens connections, each within a time limit.
#[derive(Debug, Clone)]
pub(super) struct Connector {
    way: Route,
    /// Limit of the whole connect: name lookup, connection, tunnel, TLS.
    limit: Duration,
}

#[derive(Debug, Clone)]
enum Route {
    Direct(Secured),
    Tunnel(HttpsConnector<Tunnel<Secured>>),
    /// Always to the proxy, whatever host is asked.
    PassedOn(Secured, Uri),
}

/// TCP, with TLS if the address wants it.
type Secured = HttpsConnector<TcpConnector>;

impl Connector {
    /// A connector to the requested host itself.
    pub(super) fn direct(tcp: TcpConnector, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self { way: Route::Direct(HttpsConnector::from((tcp, tls))), limit }
    }

    /// A connector through a proxy's tunnel; the proxy sees only host and port.
    pub(super) fn tunnel(
        tcp: TcpConnector,
        proxy: Uri,
        authorization: Option<HeaderValue>,
        tls: Arc<ClientConfig>,
        limit: Duration,
    ) -> Self {
        let mut tunnel = Tunnel::new(proxy, HttpsConnector::from((tcp, Arc::clone(&tls))));
        if let Some(value) = authorization {
            tunnel = tunnel.with_auth(value);
        }
        Self { way: Route::Tunnel(HttpsConnector::from((tunnel, tls))), limit }
    }

    /// A connector to a proxy that reads the destination from each request.
    pub(super) fn passed_on(tcp: TcpConnector, proxy: Uri, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self { way: Route::PassedOn(HttpsConnector::from((tcp, tls)), proxy), limit }
    }
}

/// TCP, from the dialler: this process makes no connection elsewhere.
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

    fn call(&mut self, to: Uri) -> Self::Future {
        let dialler = Arc::clone(&self.0);
        Box::pin(async move {
            let stream = dialler.dial(Url::parse(&to.to_string())?).await?;
            prepare(&stream)?;
            Ok(TokioIo::new(TcpStream::from_std(stream)?))
        })
    }
}

/// Lets the kernel notice a peer that is gone.
fn prepare(stream: &std::net::TcpStream) -> io::Result<()> {
    // Cannot fail: 30,000 ms.
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
        match &mut self.way {
            Route::Direct(way) | Route::PassedOn(way, _) => way.poll_ready(cx),
            Route::Tunnel(way) => way.poll_ready(cx),
        }
    }

    fn call(&mut self, to: Uri) -> Self::Future {
        let limit = self.limit;
        let connecting: Self::Future = match &mut self.way {
            Route::Direct(way) => {
                let connecting = way.call(to);
                Box::pin(async move { Ok(ConnectedStream::new(connecting.await?, Requests::OfThatHost)) })
            }
            Route::Tunnel(way) => {
                let connecting = way.call(to);
                Box::pin(async move { Ok(ConnectedStream::new(connecting.await?, Requests::OfThatHost)) })
            }
            Route::PassedOn(way, proxy) => {
                let connecting = way.call(proxy.clone());
                Box::pin(async move { Ok(ConnectedStream::new(connecting.await?, Requests::PassedOn)) })
            }
        };
        Box::pin(async move {
            let late = |_| BoxError::from(io::Error::from(io::ErrorKind::TimedOut));
            tokio::time::timeout(limit, connecting).await.map_err(late)?
        })
    }
}

/// An open connection.
pub(super) struct ConnectedStream {
    bytes: Pin<Box<dyn Bytes>>,
    requests: Requests,
}

/// Whether the other end is the requested host, or a proxy that reads the destination from each request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Requests {
    OfThatHost,
    PassedOn,
}

trait Bytes: Read + Write + Send {}

impl<T: Read + Write + Send> Bytes for T {}

impl ConnectedStream {
    fn new(bytes: impl Bytes + 'static, requests: Requests) -> Self {
        Self { bytes: Box::pin(bytes), requests }
    }
}

impl Connection for ConnectedStream {
    fn connected(&self) -> Connected {
        Connected::new().proxy(self.requests == Requests::PassedOn)
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
