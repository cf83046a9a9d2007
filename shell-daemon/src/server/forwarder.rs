//! The forwarder of one session: accepts its programs' connections, and hands them to the HTTP client.
//!
//! The listener is in the session's network namespace, so no other session and no other program of the
//! machine reaches it. Only the client's confined threads read bytes.

use std::{io, net::TcpListener as StdTcpListener, os::fd::OwnedFd, sync::Arc, time::Duration};

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use portcullis_egress::{Judge, TunnelLimits, TunnelWatch};
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
    /// # Errors
    /// If the listener cannot be watched.
    pub(super) fn start(
        runtime: &Handle,
        listener: OwnedFd,
        client: SessionEgress,
        judge: Arc<SessionJudge>,
    ) -> io::Result<Self> {
        let listener = StdTcpListener::from(listener);
        listener.set_nonblocking(true)?;
        let _runtime = runtime.enter();
        let listener = TcpListener::from_std(listener)?;
        let connections = Arc::new(ConnectionLog::default());
        let task = runtime.spawn(forward(listener, client, judge, Arc::clone(&connections)));
        Ok(Self { task: task.abort_handle(), connections })
    }
}

impl Drop for Forwarder {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Accepts until it is aborted. At the limit, further connections wait in the kernel.
async fn forward(
    listener: TcpListener,
    client: SessionEgress,
    judge: Arc<dyn Judge>,
    connections: Arc<ConnectionLog>,
) {
    let mut tunnels = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = listener.accept(), if tunnels.len() < CONNECTIONS => match accepted {
                Ok((stream, _peer)) => {
                    tunnels.push(carry(stream, &client, Arc::clone(&judge), &connections));
                }
                Err(error) => {
                    // Usually no descriptor is left. Open connections continue until there is one again.
                    tracing::warn!(%error, "could not accept a connection of a session");
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                }
            },
            Some(()) = tunnels.next(), if !tunnels.is_empty() => {}
        }
    }
}

async fn carry(
    stream: tokio::net::TcpStream,
    client: &SessionEgress,
    judge: Arc<dyn Judge>,
    connections: &ConnectionLog,
) {
    // It fails only if the stream cannot be taken from the runtime, and the stream is then closed.
    let Ok(stream) = stream.into_std() else { return };
    let watch = TunnelWatch::default();
    connections.add(&watch);
    let limits = TunnelLimits::default();
    // The end of the forwarder drops this future, which ends the tunnel.
    client.egress.tunnel(judge, stream, limits, watch, tokio_util::sync::CancellationToken::new()).await;
}

/// Connections of one session at a time.
const CONNECTIONS: usize = 64;

/// The pause after a failed accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
