//! A connection that speaks HTTP/1.1 over TCP or, for `https`, over TLS. It serves one request at a time.
//!
//! A connection that has served a request is reused only while it is quiet: the server has sent nothing after
//! its response, and has not closed the connection. A further byte would be taken for the beginning of the
//! next response (response splitting).

use std::{
    cell::Cell,
    io::{self, IoSlice},
    net::SocketAddr,
    pin::Pin,
    rc::Rc,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1::{self, Builder, SendRequest};
use hyper_util::rt::TokioIo;
use rustix::{
    io::Errno,
    net::{RecvFlags, recv},
};
use rustls::ClientConfig;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    time::{Instant, timeout},
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use crate::{
    FetchError, RequestLimits,
    exchange::classify_error,
    target::{Scheme, Target},
};

/// An open connection. Dropping it closes it, because only its owner drives it.
pub(crate) struct Connection {
    /// The address that was dialled: the target's, or the proxy's.
    pub(crate) address: SocketAddr,
    /// The time at which the connection was opened.
    pub(crate) opened_at: Instant,
    sender: SendRequest<Full<Bytes>>,
    driver: ConnectionDriver,
    watch: Rc<ByteWatch>,
}

/// The I/O of a connection. Bytes move only while it is polled.
struct ConnectionDriver {
    http: Pin<Box<http1::Connection<TokioIo<Watched>, Full<Bytes>>>>,
    has_ended: bool,
}

impl Connection {
    /// Performs the TLS handshake if the target's scheme is `https`, and sets up HTTP.
    ///
    /// # Cancellation
    /// Dropping the future closes the connection.
    pub(crate) async fn open(
        (address, tcp): (SocketAddr, TcpStream),
        target: &Target,
        tls: &Arc<ClientConfig>,
        limits: &RequestLimits,
    ) -> Result<Self, FetchError> {
        let host = || target.host.clone();
        let stream = match target.scheme {
            Scheme::Http => Transport::Plain(tcp),
            Scheme::Https => {
                let agreed = TlsConnector::from(Arc::clone(tls)).connect(target.server_name()?, tcp);
                match timeout(limits.connect_timeout, agreed).await {
                    Ok(Ok(stream)) => Transport::Tls(Box::new(stream)),
                    Ok(Err(source)) => return Err(FetchError::TlsFailed { host: host(), source }),
                    Err(_elapsed) => {
                        return Err(FetchError::ConnectTimeout {
                            host: host(),
                            limit: limits.connect_timeout,
                        });
                    }
                }
            }
        };
        let watch = Rc::new(ByteWatch::default());
        let header_bytes = limits.header_bytes.max(MIN_HEADER_BYTES);
        let (sender, driver) = Builder::new()
            .max_headers(limits.header_count)
            .max_header_size(header_bytes)
            .max_buf_size(header_bytes)
            .handshake(TokioIo::new(Watched { stream, watch: Rc::clone(&watch) }))
            .await
            .map_err(|source| classify_error(&target.host, source))?;
        let driver = ConnectionDriver { http: Box::pin(driver), has_ended: false };
        Ok(Self { address, opened_at: Instant::now(), sender, driver, watch })
    }

    /// Sends a request, and returns the response with its body unread.
    ///
    /// # Cancellation
    /// The caller must drop the connection together with the future, because a request is in flight on it.
    pub(crate) async fn send(
        &mut self,
        request: http::Request<Full<Bytes>>,
    ) -> hyper::Result<http::Response<hyper::body::Incoming>> {
        let sent = self.sender.send_request(request);
        self.driver.drive(sent).await
    }

    /// Awaits `future`, such as the next piece of a body, while driving the connection.
    pub(crate) async fn drive<T>(&mut self, future: impl Future<Output = T>) -> T {
        self.driver.drive(future).await
    }

    /// Returns the number of bytes received from the server so far, after decryption.
    pub(crate) fn bytes_received(&self) -> u64 {
        self.watch.received.get()
    }

    /// Returns whether the connection can take the next request: the last response was read to its end, both
    /// sides keep the connection open, and no byte has arrived since. Called after a response, and again
    /// before the next request. Until the first byte of that request is written, each poll of the connection
    /// is as strict.
    pub(crate) fn can_be_reused(&mut self) -> bool {
        self.watch.is_idle.set(true);
        // A no-op waker: no task waits for the connection until the next request polls it.
        let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
        !self.driver.has_ended
            && self.driver.http.as_mut().poll(&mut context).is_pending()
            && self.sender.is_ready()
    }
}

impl ConnectionDriver {
    /// Drives the connection until `future` completes. After the connection has ended, `future` still
    /// receives the bytes that arrived earlier, or the error.
    async fn drive<T>(&mut self, future: impl Future<Output = T>) -> T {
        let mut future = std::pin::pin!(future);
        loop {
            tokio::select! {
                // `biased`: a result that is ready wins over the end of the connection.
                biased;
                done = &mut future => return done,
                _ended = self.http.as_mut(), if !self.has_ended => self.has_ended = true,
            }
        }
    }
}

/// The state that a connection shares with its stream.
#[derive(Default)]
struct ByteWatch {
    received: Cell<u64>,
    /// Whether no request is in flight. A byte that the server sends while this holds is a fault.
    is_idle: Cell<bool>,
}

/// A stream that counts received bytes, and fails on bytes that arrive without a request.
struct Watched {
    stream: Transport,
    watch: Rc<ByteWatch>,
}

enum Transport {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Transport {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Returns whether the kernel holds received bytes, or the end of the connection. This asks the kernel
    /// directly, because the runtime's readiness can be stale.
    fn has_input(&self) -> bool {
        let mut byte = [0_u8; 1];
        let peeked = recv(self.tcp(), &mut byte[..], RecvFlags::PEEK | RecvFlags::DONTWAIT);
        !matches!(peeked, Err(Errno::AGAIN | Errno::INTR))
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let filled_before = buffer.filled().len();
        let poll = match &mut self.stream {
            Transport::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Transport::Tls(tls) => Pin::new(tls).poll_read(context, buffer),
        };
        let bytes_read = (buffer.filled().len() - filled_before) as u64;
        self.watch.received.set(self.watch.received.get() + bytes_read);
        // The runtime's readiness can be stale, so ask the kernel before reporting that nothing has arrived.
        if poll.is_pending() && self.watch.is_idle.get() && self.stream.has_input() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "bytes without a request")));
        }
        poll
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.watch.is_idle.set(false);
        match &mut self.stream {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Transport::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.is_idle.set(false);
        match &mut self.stream {
            Transport::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Transport::Tls(tls) => Pin::new(tls).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Transport::Plain(tcp) => tcp.is_write_vectored(),
            Transport::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Transport::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Transport::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Transport::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Transport::Tls(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}

/// The minimum size of a buffer that the HTTP library accepts: 8 KiB.
const MIN_HEADER_BYTES: usize = 8 << 10;
