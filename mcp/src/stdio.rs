//! Serves one client on standard input and output, one message per line.

use std::{io, sync::Arc};

use portcullis_types::CancellationToken;
use rmcp::service::{QuitReason, ServerInitializeError, serve_server_with_ct};
use tokio::io::{AsyncRead, AsyncWrite};

use super::{
    McpError, McpServer,
    lines::LineTransport,
    session::ClientPresence,
    streams::{self, McpStreams},
    task,
};

/// Serves the client on standard input and output until it leaves or `stop` is cancelled, and then until its
/// calls have ended and are answered. `stop` cancels the calls, and the server then waits at most
/// [`McpLimits::stop_timeout`](super::McpLimits).
///
/// From the start, the process's standard output is redirected to standard error, and its standard input is
/// empty. Native tools therefore cannot mix their output or input with the protocol.
///
/// # Errors
/// [`McpError`] if the streams cannot be taken over, or if the client did not begin a session.
///
/// # Cancellation
/// Dropping the future cancels the calls.
pub async fn serve_stdio(server: &McpServer, stop: CancellationToken) -> Result<(), McpError> {
    let McpStreams { input, output, pump } =
        streams::take_stdio().map_err(|source| McpError::Streams { source })?;
    let served = serve_lines(server, input, output, stop).await;
    if let Some(pump) = pump {
        // The stream is closed now. Wait until the pump has written the answers, but not for a client that
        // does not read.
        let written = tokio::task::spawn_blocking(move || pump.join());
        let _ = tokio::time::timeout(server.limits().leave_grace, written).await;
    }
    served
}

/// Serves one client on these streams, one message per line.
///
/// # Errors
/// [`McpError::Initialize`] if the client did not begin a session.
///
/// # Cancellation
/// Dropping the future cancels the calls.
pub async fn serve_lines<R, W>(
    server: &McpServer,
    input: R,
    output: W,
    stop: CancellationToken,
) -> Result<(), McpError>
where
    R: AsyncRead + Send + Unpin + 'static,
    W: AsyncWrite + Send + Unpin + 'static,
{
    let presence = ClientPresence::default();
    let session = server.session(presence.clone())?;
    // Dropping this future cancels the calls.
    let _ignored = presence.disconnected.clone().drop_guard();
    let lines = LineTransport::new(input, output, server.limits(), presence.clone(), stop.clone());
    // The transport ends when all requests are answered. This token ends it if that takes too long.
    let session_end = CancellationToken::new();
    let (stop_signal, session_end_signal, stop_time) =
        (stop.clone(), session_end.clone(), server.limits().stop_timeout);
    let _watch = task::spawn(async move {
        stop_signal.cancelled().await;
        tokio::time::sleep(stop_time).await;
        session_end_signal.cancel();
    });
    let starting = serve_server_with_ct(session, lines, session_end);
    let running = match tokio::time::timeout(server.limits().initialize_timeout, starting).await {
        Ok(Ok(running)) => running,
        // The client left, or the server was stopped, before the session began.
        Ok(Err(ServerInitializeError::ConnectionClosed(_) | ServerInitializeError::Cancelled)) => {
            return Ok(());
        }
        Ok(Err(error)) => return Err(McpError::Initialize { source: Arc::new(error) }),
        Err(_) => {
            let timed_out = io::Error::new(io::ErrorKind::TimedOut, "no session was begun in time");
            return Err(McpError::Streams { source: timed_out });
        }
    };
    let outcome = running.waiting().await;
    // Cancel the calls before waiting for them.
    presence.disconnected.cancel();
    server.wait_for_cancelled_calls(&presence.session_calls, &stop).await;
    match outcome {
        Ok(QuitReason::JoinError(error)) | Err(error) => {
            Err(McpError::Streams { source: io::Error::other(error) })
        }
        Ok(_) => Ok(()),
    }
}
