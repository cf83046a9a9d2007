//! Runs the sidecar from its listener to its end: admits clients, and shuts down in order.

use std::{collections::HashMap, convert::Infallible, sync::Arc, time::Duration};

use futures_util::{Stream, StreamExt as _, stream};
use tokio::{
    net::{UnixListener, UnixStream},
    sync::OwnedSemaphorePermit,
    time::timeout,
};
use tonic::{service::interceptor::InterceptedService, transport::Server};

use super::{
    SidecarServerConfig, SidecarServerError, Token, auth::AuthInterceptor, calls::ShellCalls,
    connection::ConnectionIo, health::prove, sidecar::SidecarServer,
};
use portcullis_shell_protocol::{PostureReport, shell_server::ShellServer};

/// Serves clients of `listener` until `stop` resolves. A client's user must be this process's user or one of
/// `allowed_uids`.
///
/// Before the first connection, the sidecar starts and ends a session, and passes the posture that this session proved
/// to `ready`. After `stop` resolves, no new work is accepted, running commands get
/// [`super::ServiceLimits::grace`], and all sessions are ended.
///
/// # Cancellation
/// Dropping the future ends every session without waiting for its end.
///
/// # Errors
/// The errors of an invalid configuration, [`SidecarServerError::Session`] if no session of the configured posture can be
/// started, and [`SidecarServerError::Serve`] if the server fails.
pub async fn serve(
    config: SidecarServerConfig,
    token: Token,
    listener: UnixListener,
    allowed_uids: &[u32],
    ready: impl FnOnce(&PostureReport),
    stop: impl Future<Output = ()>,
) -> Result<(), SidecarServerError> {
    let sidecar = Arc::new(SidecarServer::new(config, token)?);
    ready(&prove(&sidecar, HashMap::new()).await.map_err(|source| SidecarServerError::Session { source })?);
    let incoming = stream::unfold((listener, Arc::clone(&sidecar)), |(listener, sidecar)| async {
        let connection = accept(&listener, &sidecar, allowed_uids).await;
        Some((Ok::<_, Infallible>(connection), (listener, sidecar)))
    });
    run(&sidecar, incoming, stop).await
}

/// Serves one connection until it ends. `early` holds the bytes that were already read from it.
pub(super) async fn serve_one(
    config: SidecarServerConfig,
    token: Token,
    stream: UnixStream,
    early: Vec<u8>,
) -> Result<(), SidecarServerError> {
    let sidecar = Arc::new(SidecarServer::new(config, token)?);
    let Some(permit) = connection_permit(&sidecar).await else { return Ok(()) };
    let connection = connect(stream, early, &sidecar, permit);
    let closed = connection.closed();
    let incoming = stream::once(async { Ok::<_, Infallible>(connection) }).chain(stream::pending());
    run(&sidecar, incoming, closed).await
}

async fn run(
    sidecar: &Arc<SidecarServer>,
    incoming: impl Stream<Item = Result<ConnectionIo, Infallible>>,
    stop: impl Future<Output = ()>,
) -> Result<(), SidecarServerError> {
    let service = sidecar.config.service;
    let shell =
        ShellServer::new(ShellCalls(Arc::clone(sidecar))).max_decoding_message_size(service.message_bytes);
    let stopped = async {
        stop.await;
        sidecar.stopping.cancel();
        // Each running command holds a permit: all permits are free when the last command has ended.
        let all_permits = u32::try_from(service.commands).unwrap_or(u32::MAX);
        if timeout(service.grace, sidecar.commands.acquire_many(all_permits)).await.is_err() {
            sidecar.cancel_commands();
        }
    };
    let served = Server::builder()
        .max_concurrent_streams(service.calls_per_connection)
        .http2_keepalive_interval(Some(service.keepalive_interval))
        .http2_keepalive_timeout(Some(service.keepalive_timeout))
        .http2_max_header_list_size(MAX_HEADER_BYTES)
        .serve_with_incoming_shutdown(
            InterceptedService::new(shell, AuthInterceptor(Arc::clone(sidecar))),
            incoming,
            stopped,
        );
    // Hang up on clients that still have not read their output some time after the last command ended.
    let cut = async {
        sidecar.stopping.cancelled().await;
        tokio::time::sleep(service.grace + CLOSE_DELAY).await;
        sidecar.hangup.cancel();
        // The server ends by itself when its connections are closed.
        std::future::pending::<()>().await;
    };
    let result = tokio::select! {
        served = served => served.map_err(|source| SidecarServerError::Serve { source }),
        () = cut => Ok(()),
    };
    sidecar.stopping.cancel();
    sidecar.hangup.cancel();
    // A session releases its permit when its processes are gone: all permits are free when all sessions have ended.
    let all_permits = u32::try_from(service.sessions).unwrap_or(u32::MAX);
    if timeout(SESSION_END_TIMEOUT, sidecar.sessions.acquire_many(all_permits)).await.is_err() {
        tracing::error!("some sessions did not end in time");
    }
    result
}

/// Waits for the next connection that is admitted.
async fn accept(listener: &UnixListener, sidecar: &Arc<SidecarServer>, allowed_uids: &[u32]) -> ConnectionIo {
    loop {
        let stream = match listener.accept().await {
            Ok((stream, _)) => stream,
            Err(error) => {
                // Usually no descriptor is left. Existing connections continue until one is free again.
                tracing::warn!(%error, "could not accept a connection");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let uid = match stream.peer_cred() {
            Ok(peer) => peer.uid(),
            Err(error) => {
                tracing::warn!(%error, "could not read the user of a connection");
                continue;
            }
        };
        if uid != rustix::process::geteuid().as_raw() && !allowed_uids.contains(&uid) {
            tracing::warn!(uid, "refused a connection of another user");
            continue;
        }
        if let Some(permit) = connection_permit(sidecar).await {
            return connect(stream, Vec::new(), sidecar, permit);
        }
        tracing::warn!("closed a connection: the sidecar has reached its limit of connections");
    }
}

/// Takes a permit for a connection. If none is left, the oldest connection that has not sent the token loses its
/// permit. A flood of connections without the token therefore cannot lock out authenticated clients.
async fn connection_permit(sidecar: &SidecarServer) -> Option<OwnedSemaphorePermit> {
    let permits = &sidecar.connections;
    if let Ok(permit) = Arc::clone(permits).try_acquire_owned() {
        return Some(permit);
    }
    if !sidecar.close_unauthenticated() {
        return None;
    }
    // The cut connection gives its permit back when its stream is dropped.
    timeout(HANG_UP_TIMEOUT, Arc::clone(permits).acquire_owned()).await.ok()?.ok()
}

fn connect(
    stream: UnixStream,
    early: Vec<u8>,
    sidecar: &Arc<SidecarServer>,
    permit: OwnedSemaphorePermit,
) -> ConnectionIo {
    let service = &sidecar.config.service;
    let connection = ConnectionIo::new(
        stream,
        early,
        service.sessions_per_connection,
        service.token_timeout,
        sidecar.hangup.child_token(),
        permit,
    );
    sidecar.register_connection(connection.connection());
    connection
}

/// The maximum number of bytes of the headers of one call.
const MAX_HEADER_BYTES: u32 = 16 << 10;

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The time limit of the wait for a permit after hanging up on a client.
const HANG_UP_TIMEOUT: Duration = Duration::from_secs(1);

/// The time from the end of the grace period to hanging up on the remaining clients.
const CLOSE_DELAY: Duration = Duration::from_secs(1);

/// The time from the end of the connections until the sidecar stops waiting for its sessions. Later, the sessions'
/// guards end them.
const SESSION_END_TIMEOUT: Duration = Duration::from_secs(10);
