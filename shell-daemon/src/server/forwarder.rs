//! The forwarder of one session: accepts the connections of the session's programs, and hands them to the HTTP client.
//!
//! The listener is in the session's network namespace, so other sessions and other programs of the machine cannot
//! reach it. Only the client's confined threads read the connections' bytes.

use std::{io, net::TcpListener as StdTcpListener, os::fd::OwnedFd, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use portcullis_egress::{Judge, TunnelLimits, TunnelShare, TunnelWatch};
use tokio::{net::TcpListener, runtime::Handle, task::AbortHandle};

use super::{
    connections::ConnectionLog,
    session_egress::{SessionEgress, SessionJudge},
};

/// A running forwarder. Dropping it closes the listener and all connections.
#[derive(Debug)]
pub(super) struct Forwarder {
    task: AbortHandle,
    pub(super) connections: Arc<ConnectionLog>,
}

impl Forwarder {
    /// Starts the forwarder's task.
    ///
    /// # Errors
    /// The I/O error if the runtime cannot watch the listener.
    pub(super) fn start(
        runtime: &Handle,
        listener: OwnedFd,
        client: SessionEgress,
        judge: Arc<SessionJudge>,
        share: TunnelShare,
    ) -> io::Result<Self> {
        let listener = StdTcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let _runtime = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let connections = Arc::new(ConnectionLog::default());
        let task = runtime.spawn(forward(listener, client, judge, share, Arc::clone(&connections)));
        Ok(Self { task: task.abort_handle(), connections })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts connections until the task is aborted. At the limit, further connections wait in the kernel.
async fn forward(
    listener: TcpListener,
    client: SessionEgress,
    judge: Arc<dyn Judge>,
    share: TunnelShare,
    connections: Arc<ConnectionLog>,
) {
    let mut tunnels = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if tunnels.len() < MAX_CONNECTIONS => match accepted {
                Ok((stream, _peer)) => {
                    tunnels.push(serve_connection(stream, &client, Arc::clone(&judge), share.clone(), &connections));
                }
                Err(error) => {
                    // Usually no descriptor is left. Open connections continue until one is free again.
                    tracing::warn!(%error, "could not accept a connection of a session");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(()) = tunnels.next(), if !tunnels.is_empty() => {}
        }
    }
}

/// Serves one connection until its end or the end of its session.
async fn serve_connection(
    stream: tokio::net::TcpStream,
    client: &SessionEgress,
    judge: Arc<dyn Judge>,
    share: TunnelShare,
    connections: &ConnectionLog,
) {
    // This fails only if the runtime cannot release the stream. The stream is then closed.
    let Ok(stream) = stream.into_std() else { return };
    let watch = TunnelWatch::default();
    connections.add(&watch);
    let limits = TunnelLimits::default();
    // The end of the forwarder drops this future, which ends the tunnel.
    let cancel = tokio_util::sync::CancellationToken::new();
    client.egress.tunnel(judge, stream, limits, share, watch, cancel).await;
}

/// The maximum number of connections of one session at a time.
const MAX_CONNECTIONS: usize = 64;

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
