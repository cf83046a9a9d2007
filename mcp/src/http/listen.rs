//! Listens at an address, and serves connections with limits on their number, their requests and their time.

use std::{convert::Infallible, io, net::SocketAddr, os::fd::AsFd as _, sync::Arc, time::Duration};

use hyper::{server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use portcullis_types::CancellationToken;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use rustix::net::sockopt::set_tcp_user_timeout;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
    time::timeout,
};

use super::admission::{Gate, HttpAccess};
use crate::{McpError, McpServer, limits::McpLimits};

/// Limit of a request's headers.
const MAX_HEADERS: usize = 64;

/// How long sent data may stay unacknowledged (`TCP_USER_TIMEOUT`) before the connection ends.
const UNACKNOWLEDGED: Duration = Duration::from_secs(60);

/// Pause after a failed `accept`. Such a failure usually means that file descriptors ran out.
const PAUSE: Duration = Duration::from_millis(50);

/// The answer to a connection beyond the limit.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\nretry-after: 1\r\n\
      content-type: text/plain\r\ncontent-length: 44\r\n\r\nthere are as many connections as may be now\n";

/// Listens at an address. An address that other machines can reach must be allowed explicitly.
///
/// # Errors
/// [`McpError::Remote`], [`McpError::Listen`].
///
/// # Cancellation
/// Dropping the future has no effect.
pub async fn bind(address: SocketAddr, allow_remote: bool) -> Result<TcpListener, McpError> {
    if !address.ip().is_loopback() && !allow_remote {
        return Err(McpError::Remote { address });
    }
    TcpListener::bind(address).await.map_err(|source| McpError::Listen { address, source })
}

/// Serves clients until `stop` fires. Then it cancels their calls, and waits at most [`McpLimits::stop`] until
/// the calls have ended and are answered.
///
/// # Cancellation
/// Dropping the future ends all connections and sessions.
pub async fn serve_http(
    server: &McpServer,
    listener: TcpListener,
    access: HttpAccess,
    stop: CancellationToken,
) {
    // Sessions outlive their connections and `stop`, until all requests are answered. Dropping this guard ends
    // the sessions.
    let sessions = CancellationToken::new();
    let _sessions_end = sessions.clone().drop_guard();
    let config = StreamableHttpServerConfig::default().with_cancellation_token(sessions.clone());
    let gate = Arc::new(Gate::new(server, access, config, stop.clone()));
    let limits = server.limits();
    let free_slots = Arc::new(Semaphore::new(limits.connections));
    let mut connections = JoinSet::new();
    let closing = CancellationToken::new();
    loop {
        // Reap finished connections.
        while connections.try_join_next().is_some() {}
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) => {
                tracing::warn!("no connection: {error}");
                tokio::time::sleep(PAUSE).await;
                continue;
            }
        };
        let Ok(slot) = Arc::clone(&free_slots).try_acquire_owned() else {
            // Write only as much as fits without waiting, so that a slow client cannot block the loop.
            let _ = stream.try_write(FULL);
            continue;
        };
        let connection = serve_connection(stream, Arc::clone(&gate), limits, closing.clone());
        connections.spawn(async move {
            connection.await;
            drop(slot);
        });
    }
    // From here on the kernel refuses connections.
    drop(listener);
    // `stop` has cancelled the calls. Each gets its answer before sessions and connections are closed.
    let _ = timeout(limits.stop, gate.wait_until_answered()).await;
    sessions.cancel();
    closing.cancel();
    // Connections that do not end in time are aborted with the `JoinSet`.
    let closed = async { while connections.join_next().await.is_some() {} };
    let _ = timeout(limits.leave, closed).await;
    server.wait_for_cancelled_calls(server.server_calls(), &stop).await;
}

/// Serves one connection until it ends.
fn serve_connection(
    stream: TcpStream,
    gate: Arc<Gate>,
    limits: &McpLimits,
    closing: CancellationToken,
) -> impl Future<Output = ()> + Send + 'static {
    let mut protocol = http1::Builder::new();
    protocol
        .timer(TokioTimer::new())
        .header_read_timeout(limits.request)
        .max_buf_size(limits.head_bytes)
        .max_headers(MAX_HEADERS);
    async move {
        if let Err(error) = prepare(&stream) {
            tracing::info!("a connection is not used: {error}");
            return;
        }
        let answering = service_fn(move |request| {
            let gate = Arc::clone(&gate);
            async move { Ok::<_, Infallible>(gate.answer(request).await) }
        });
        let connection = protocol.serve_connection(TokioIo::new(stream), answering);
        let mut connection = std::pin::pin!(connection);
        let served = tokio::select! {
            served = connection.as_mut() => served,
            () = closing.cancelled() => {
                // The shutdown still sends the answers that are ready.
                connection.as_mut().graceful_shutdown();
                connection.await
            }
        };
        if let Err(error) = served {
            tracing::debug!("a connection ended: {error}");
        }
    }
}

/// Sets the options of a connection: no delay of small packets, and the limit of unacknowledged data.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    // The conversion cannot fail: 60,000 ms.
    let unacknowledged = u32::try_from(UNACKNOWLEDGED.as_millis()).unwrap_or(u32::MAX);
    set_tcp_user_timeout(stream.as_fd(), unacknowledged)?;
    Ok(())
}
