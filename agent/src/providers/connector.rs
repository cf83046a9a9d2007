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
use hyper_util::client::legacy::connect::{Connected, Connection, HttpConnector, proxy::Tunnel};
use rustls::ClientConfig;
use tower_service::Service;

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
type Secured = HttpsConnector<HttpConnector>;

impl Connector {
    /// A connector to the requested host itself.
    pub(super) fn direct(tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self { way: Route::Direct(secured(tls, limit)), limit }
    }

    /// A connector through a proxy's tunnel; the proxy sees only host and port.
    pub(super) fn tunnel(
        proxy: Uri,
        authorization: Option<HeaderValue>,
        tls: Arc<ClientConfig>,
        limit: Duration,
    ) -> Self {
        let mut tunnel = Tunnel::new(proxy, secured(Arc::clone(&tls), limit));
        if let Some(value) = authorization {
            tunnel = tunnel.with_auth(value);
        }
        Self { way: Route::Tunnel(HttpsConnector::from((tunnel, tls))), limit }
    }

    /// A connector to a proxy that reads the destination from each request.
    pub(super) fn passed_on(proxy: Uri, tls: Arc<ClientConfig>, limit: Duration) -> Self {
        Self { way: Route::PassedOn(secured(tls, limit), proxy), limit }
    }
}

fn secured(tls: Arc<ClientConfig>, limit: Duration) -> Secured {
    let mut tcp = HttpConnector::new();
    // Other schemes than `http` are handled by the TLS layer above.
    tcp.enforce_http(false);
    // hyper divides this limit over the addresses of a name, so that a silent address leaves time for the
    // next.
    tcp.set_connect_timeout(Some(limit));
    tcp.set_tcp_user_timeout(Some(UNACKNOWLEDGED));
    tcp.set_nodelay(true);
    tcp.set_keepalive(Some(KEEPALIVE));
    tcp.set_keepalive_interval(Some(KEEPALIVE));
    tcp.set_keepalive_retries(Some(KEEPALIVE_TRIES));
    HttpsConnector::from((tcp, tls))
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
