//! [`Connections`]: the connections of a server, with limits on their number, their requests and their
//! duration.

use std::{convert::Infallible, error::Error, io, os::fd::AsFd as _, sync::Arc, time::Duration};

use http::{Request, Response};
use hyper::{
    body::{Body, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::{TokioIo, TokioTimer};
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};
use tokio_util::sync::CancellationToken;

/// The maximum number of headers in a request.
const MAX_HEADERS: usize = 64;

/// After this time with unacknowledged data a connection ends (`TCP_USER_TIMEOUT`).
const MAX_UNACKNOWLEDGED_TIME: Duration = Duration::from_secs(60);

/// The pause after a failed `accept`, which usually means that file descriptors ran out.
const ACCEPT_RETRY_PAUSE: Duration = Duration::from_millis(50);

/// The response to a connection beyond the limit.
const TOO_MANY_CONNECTIONS: &[u8] =
    b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
      content-type: text/plain\r\ncontent-length: 38\r\n\r\ntoo many connections; try again later\n";

/// The limits of a server's connections.
#[derive(Debug, Clone)]
pub struct HttpLimits {
    /// The maximum number of open connections. Further connections get status 503.
    pub max_connections: usize,
    /// The timeout of a request's head, counted from the start of the connection or the previous response.
    pub head_timeout: Duration,
    /// The maximum length of a request's head, in bytes. At least 8 KiB.
    pub max_head_bytes: usize,
}

/// The open connections of a server that accepts no more. Dropping them aborts all of them.
#[derive(Debug)]
pub struct Connections {
    tasks: JoinSet<()>,
    closing: CancellationToken,
}

impl Connections {
    /// Serves clients until `stop` completes. Then closes the listener, and returns the open connections,
    /// which are still served.
    ///
    /// # Cancellation
    /// Dropping the future aborts all connections.
    pub async fn accept<F, A, B>(
        listener: TcpListener,
        limits: &HttpLimits,
        handler: F,
        stop: impl Future<Output = ()>,
    ) -> Self
    where
        F: Fn(Request<Incoming>) -> A + Clone + Send + 'static,
        A: Future<Output = Response<B>> + Send,
        B: Body + Send + 'static,
        B::Data: Send,
        B::Error: Into<Box<dyn Error + Send + Sync>>,
    {
        let free_slots = Arc::new(Semaphore::new(limits.max_connections));
        let (mut open, closing) = (JoinSet::new(), CancellationToken::new());
        let mut stop = std::pin::pin!(stop);
        loop {
            // Reap finished connections.
            while open.try_join_next().is_some() {}
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = &mut stop => break,
            };
            let stream = match accepted {
                Ok((stream, _)) => stream,
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, "cannot accept a connection");
                    tokio::time::sleep(ACCEPT_RETRY_PAUSE).await;
                    continue;
                }
            };
            let Ok(slot) = Arc::clone(&free_slots).try_acquire_owned() else {
                // Write only what fits into the socket's buffer, so that a slow client cannot block the loop.
                let _ = stream.try_write(TOO_MANY_CONNECTIONS);
                continue;
            };
            let connection = serve(stream, handler.clone(), limits, closing.clone());
            open.spawn(async move {
                connection.await;
                drop(slot);
            });
        }
        Self { tasks: open, closing }
    }

    /// Closes all connections. Each may still send its response in flight. Connections that last longer than
    /// the grace period are aborted.
    pub async fn close(mut self, grace: Duration) {
        self.closing.cancel();
        // Dropping the `JoinSet` aborts the connections that do not end in time.
        let closed = async { while self.tasks.join_next().await.is_some() {} };
        let _ = timeout(grace, closed).await;
    }
}

/// Serves one connection until it ends.
fn serve<F, A, B>(
    stream: TcpStream,
    handler: F,
    limits: &HttpLimits,
    closing: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static + use<F, A, B>
where
    F: Fn(Request<Incoming>) -> A + Send + 'static,
    A: Future<Output = Response<B>> + Send,
    B: Body + Send + 'static,
    B::Data: Send,
    B::Error: Into<Box<dyn Error + Send + Sync>>,
{
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_timeout)
        .max_buf_size(limits.max_head_bytes)
        .max_headers(MAX_HEADERS);
    async move {
        if let Err(error) = prepare(&stream) {
            tracing::info!("cannot set the options of a connection, so it is closed: {error}");
            return;
        }
        let service = service_fn(move |request| {
            let response = handler(request);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let connection = protocol.serve_connection(TokioIo::new(stream), service);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = closing.cancelled() => {
                // The shutdown still sends responses in flight.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!("a connection ended: {error}");
        }
    }
}

/// Sets the options of a connection: no delay of small packets, and the limit on unacknowledged data.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // The conversion cannot fail: 60,000 ms.
    let unacknowledged = u32::try_from(MAX_UNACKNOWLEDGED_TIME.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(stream.as_fd(), unacknowledged)?;
    Ok(())
}

#[cfg(test)]
mod tests;
