//! A connection that speaks HTTP/1.1: over TCP, or over TLS where the scheme asks for it. It serves one request after
//! the other.
//!
//! A connection that has served a request is used again only while it is quiet: the server has sent nothing beyond its
//! answer, and has not closed. A byte more would be taken for the beginning of the next answer (response splitting).

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
    exchange::fault,
    target::{Scheme, Target},
};

/// An open connection. Dropping it closes it: nothing but its owner drives it.
pub(crate) struct Connection {
    /// The address that was dialled.
    pub(crate) address: SocketAddr,
    /// When it was opened.
    pub(crate) opened: Instant,
    sender: SendRequest<Full<Bytes>>,
    driver: Driver,
    line: Rc<Line>,
}

/// Moves a connection's bytes while it is polled.
struct Driver {
    http: Pin<Box<http1::Connection<TokioIo<Watched>, Full<Bytes>>>>,
    has_ended: bool,
}

impl Connection {
    /// Agrees on TLS, if the target's scheme asks for it, and on HTTP.
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
            Scheme::Http => Stream::Plain(tcp),
            Scheme::Https => {
                let agreed = TlsConnector::from(Arc::clone(tls)).connect(target.server_name()?, tcp);
                match timeout(limits.connect, agreed).await {
                    Ok(Ok(stream)) => Stream::Tls(Box::new(stream)),
                    Ok(Err(source)) => return Err(FetchError::TlsFailed { host: host(), source }),
                    Err(_elapsed) => {
                        return Err(FetchError::ConnectTimeout { host: host(), limit: limits.connect });
                    }
                }
            }
        };
        let line = Rc::new(Line::default());
        let header_bytes = limits.header_bytes.max(LEAST_HEADER_BYTES);
        let (sender, driver) = Builder::new()
            .max_headers(limits.header_count)
            .max_header_size(header_bytes)
            .max_buf_size(header_bytes)
            .handshake(TokioIo::new(Watched { stream, line: Rc::clone(&line) }))
            .await
            .map_err(|source| fault(&target.host, source))?;
        let driver = Driver { http: Box::pin(driver), has_ended: false };
        Ok(Self { address, opened: Instant::now(), sender, driver, line })
    }

    /// Sends a request, and returns the head of its answer with the body, which is not read yet.
    ///
    /// # Cancellation
    /// The connection must be dropped with the future: it has a request under way.
    pub(crate) async fn send(
        &mut self,
        request: http::Request<Full<Bytes>>,
    ) -> hyper::Result<http::Response<hyper::body::Incoming>> {
        let sent = self.sender.send_request(request);
        self.driver.drive(sent).await
    }

    /// Awaits something of this connection, such as the next piece of a body, and moves its bytes meanwhile.
    pub(crate) async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        self.driver.drive(work).await
    }

    /// The bytes that have come from the server so far, after decryption.
    pub(crate) fn received(&self) -> u64 {
        self.line.received.get()
    }

    /// Whether the connection can take the next request: the last answer was read to its end, both sides keep the
    /// connection, and not a byte has come since. Asked after an answer, and again before the next request. Until the
    /// first byte of that request is written, each look at the connection is as strict.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.line.is_idle.set(true);
        // The waker is that of the next request's owner; until then there is nothing to wake.
        let mut context = Context::from_waker(futures_util::task::noop_waker_ref());
        !self.driver.has_ended
            && self.driver.http.as_mut().poll(&mut context).is_pending()
            && self.sender.is_ready()
    }
}

impl Driver {
    /// Drives the connection while the work runs. After the connection has ended, the work still gets what was received
    /// before, or the error.
    async fn drive<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        loop {
            tokio::select! {
                biased;
                done = &mut work => return done,
                _ended = self.http.as_mut(), if !self.has_ended => self.has_ended = true,
            }
        }
    }
}

/// What is known of a connection's bytes.
#[derive(Default)]
struct Line {
    received: Cell<u64>,
    /// Whether no request is under way. Any byte that the server sends then is a fault.
    is_idle: Cell<bool>,
}

/// A stream that counts, and that refuses bytes that nothing was asked for.
struct Watched {
    stream: Stream,
    line: Rc<Line>,
}

enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Stream {
    fn tcp(&self) -> &TcpStream {
        match self {
            Self::Plain(tcp) => tcp,
            Self::Tls(tls) => tls.get_ref().0,
        }
    }

    /// Whether the kernel has bytes or the end of the connection for us. The runtime's own readiness is as old as its
    /// last look at the descriptor, so the kernel is asked.
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
        let before = buffer.filled().len();
        let read = match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_read(context, buffer),
            Stream::Tls(tls) => Pin::new(tls).poll_read(context, buffer),
        };
        let more = (buffer.filled().len() - before) as u64;
        self.line.received.set(self.line.received.get() + more);
        if read.is_pending() && self.line.is_idle.get() && self.stream.has_input() {
            return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, "bytes without a request")));
        }
        read
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.line.is_idle.set(false);
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write(context, bytes),
            Stream::Tls(tls) => Pin::new(tls).poll_write(context, bytes),
        }
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.line.is_idle.set(false);
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_write_vectored(context, slices),
            Stream::Tls(tls) => Pin::new(tls).poll_write_vectored(context, slices),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match &self.stream {
            Stream::Plain(tcp) => tcp.is_write_vectored(),
            Stream::Tls(tls) => tls.is_write_vectored(),
        }
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_flush(context),
            Stream::Tls(tls) => Pin::new(tls).poll_flush(context),
        }
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        match &mut self.stream {
            Stream::Plain(tcp) => Pin::new(tcp).poll_shutdown(context),
            Stream::Tls(tls) => Pin::new(tls).poll_shutdown(context),
        }
    }
}

/// The HTTP library takes no smaller buffer.
const LEAST_HEADER_BYTES: usize = 8 << 10;
