//! Serves clients at a listener until the server must stop.

use std::sync::Arc;

use portcullis_http_server::{Connections, HttpLimits};
use portcullis_types::CancellationToken;
use rmcp::transport::streamable_http_server::StreamableHttpServerConfig;
use tokio::{net::TcpListener, time::timeout};

use super::admission::{Gate, HttpAccess};
use crate::McpServer;

/// Serves clients until `stop` is cancelled. Then it cancels their calls, and waits at most
/// [`McpLimits::stop_timeout`] until the calls have ended and are answered.
///
/// # Cancellation
/// Dropping the future ends all connections and sessions.
///
/// [`McpLimits::stop_timeout`]: crate::McpLimits::stop_timeout
pub async fn serve_http(
    server: &McpServer,
    listener: TcpListener,
    access: HttpAccess,
    stop: CancellationToken,
) {
    // Sessions outlive their connections and `stop`, until all requests are answered. Dropping this guard
    // ends them.
    let sessions = CancellationToken::new();
    let _sessions_end = sessions.clone().drop_guard();
    let config = StreamableHttpServerConfig::default().with_cancellation_token(sessions.clone());
    let gate = Arc::new(Gate::new(server, access, config, stop.clone()));
    let limits = server.limits();
    let of_connections = HttpLimits {
        max_connections: limits.max_connections,
        head_timeout: limits.request_timeout,
        max_head_bytes: limits.max_head_bytes,
    };
    let answering = Arc::clone(&gate);
    let handler = move |request| {
        let gate = Arc::clone(&answering);
        async move { gate.respond(request).await }
    };
    let connections = Connections::accept(listener, &of_connections, handler, stop.cancelled()).await;
    // `stop` has cancelled the calls. Let each get its response before sessions and connections are closed.
    let _ = timeout(limits.stop_timeout, gate.wait_until_answered()).await;
    sessions.cancel();
    connections.close(limits.leave_grace).await;
    server.wait_for_cancelled_calls(server.server_calls(), &stop).await;
}
