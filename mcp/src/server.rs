//! [`McpServer`]: a registry that clients are served from, and what all their sessions share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_tools::{ToolRegistry, approval::Approver};
use portcullis_types::CancellationToken;
use rmcp::model::Tool;
use tokio::sync::{Notify, watch};

use super::{
    McpError,
    client::Clients,
    limits::McpLimits,
    listing,
    session::{Presence, Session},
};

/// A registry that clients are served from. Copies serve the same.
///
/// Every call of every client goes through [`ToolRegistry::execute_with_policy`]. By default whoever must be
/// asked is asked through the client, where it can ask; [`McpServer::approver`] puts somebody in its place.
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<Shared>,
}

/// What all sessions share.
struct Shared {
    offered: watch::Sender<Arc<Offered>>,
    approver: Mutex<Option<Arc<dyn Approver>>>,
    clients: Clients,
    limits: McpLimits,
    running: Running,
}

/// A registry, and what clients are shown of it.
pub(super) struct Offered {
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) tools: Vec<Tool>,
}

impl McpServer {
    /// A server of this registry.
    ///
    /// # Errors
    /// [`McpError::Listing`] if the protocol has no way to say what a tool is.
    pub fn new(registry: Arc<ToolRegistry>, limits: McpLimits) -> Result<Self, McpError> {
        Self::with_clients(registry, limits, Clients::default())
    }

    /// As [`McpServer::new`], for tools of this process that speak with the client that calls them: they hold the
    /// same [`Clients`].
    ///
    /// # Errors
    /// As there.
    pub fn with_clients(
        registry: Arc<ToolRegistry>,
        limits: McpLimits,
        clients: Clients,
    ) -> Result<Self, McpError> {
        let (offered, _) = watch::channel(offered(registry)?);
        let (approver, running) = (Mutex::new(None), Running::default());
        Ok(Self { shared: Arc::new(Shared { offered, approver, clients, limits, running }) })
    }

    /// Asks this one about calls, and no client.
    #[must_use]
    pub fn approver(self, approver: Arc<dyn Approver>) -> Self {
        *self.shared.approver.lock().unwrap_or_else(PoisonError::into_inner) = Some(approver);
        self
    }

    /// Serves another registry from now on. Calls that run end in theirs. Clients are told that the tools have
    /// changed, if they have.
    ///
    /// # Errors
    /// As [`McpServer::new`]; then everything stays as it was.
    pub fn replace(&self, registry: Arc<ToolRegistry>) -> Result<(), McpError> {
        let next = offered(registry)?;
        self.shared.offered.send_replace(next);
        Ok(())
    }

    /// Waits until no call runs. Calls are cancelled by ending what they came by.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn idle(&self) {
        self.shared.running.idle().await;
    }

    pub(super) fn session(&self, presence: Presence) -> Result<Session, McpError> {
        Session::new(self.clone(), presence)
    }

    /// Waits until none of these calls runs, all of which are cancelled; where the server was told to end, no longer
    /// than it may take for that.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn idle_unless_late(&self, running: &Running, stop: &CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(self.shared.limits.stop).await;
        };
        tokio::select! {
            () = running.idle() => {}
            () = late => tracing::warn!("calls are left that did not end in time"),
        }
    }

    pub(super) fn offered(&self) -> Arc<Offered> {
        Arc::clone(&self.shared.offered.borrow())
    }

    /// Offers what can run now, after a call that may have found out that a tool cannot. Clients are told where that is
    /// another list.
    pub(super) fn look_again(&self, known: &Arc<Offered>) {
        if known.registry.offered().count() == known.tools.len() {
            return;
        }
        match offered(Arc::clone(&known.registry)) {
            Ok(now) => {
                // Unless another registry is served meanwhile.
                let _is_changed = self.shared.offered.send_if_modified(|served| {
                    let is_same = Arc::ptr_eq(&served.registry, &known.registry);
                    if is_same {
                        *served = now;
                    }
                    is_same
                });
            }
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "the list of tools stays as it was");
            }
        }
    }

    /// Tells when another registry is served.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<Offered>> {
        self.shared.offered.subscribe()
    }

    pub(super) fn own_approver(&self) -> Option<Arc<dyn Approver>> {
        self.shared.approver.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    pub(super) fn limits(&self) -> &McpLimits {
        &self.shared.limits
    }

    pub(super) fn clients(&self) -> &Clients {
        &self.shared.clients
    }

    pub(super) fn running(&self) -> &Running {
        &self.shared.running
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("tools", &self.offered().tools.len())
            .field("limits", &self.shared.limits)
            .finish_non_exhaustive()
    }
}

fn offered(registry: Arc<ToolRegistry>) -> Result<Arc<Offered>, McpError> {
    let tools = listing::tools(&registry)?;
    Ok(Arc::new(Offered { registry, tools }))
}

/// How many calls run.
#[derive(Debug, Clone, Default)]
pub(super) struct Running(Arc<(AtomicUsize, Notify)>);

/// A call that runs; dropped at its end.
#[derive(Debug)]
pub(super) struct RunningCall(Running);

impl Running {
    pub(super) fn begin(&self) -> RunningCall {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        RunningCall(self.clone())
    }

    /// Another call, unless this many run.
    pub(super) fn begin_below(&self, limit: usize) -> Option<RunningCall> {
        let below = |count: usize| (count < limit).then_some(count + 1);
        self.0.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, below).ok()?;
        Some(RunningCall(self.clone()))
    }

    /// Waits until none runs.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn idle(&self) {
        loop {
            // Listens before it looks, so that no end goes unheard.
            let ended = self.0.1.notified();
            let mut ended = std::pin::pin!(ended);
            ended.as_mut().enable();
            if self.0.0.load(Ordering::SeqCst) == 0 {
                return;
            }
            ended.await;
        }
    }
}

impl Drop for RunningCall {
    fn drop(&mut self) {
        if self.0.0.0.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.0.0.1.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn calls_are_counted_bounded_and_waited_for() {
        let running = Running::default();
        assert!(running.idle().now_or_never().is_some());
        let first = running.begin_below(2).expect("a place");
        let second = running.begin_below(2).expect("a place");
        assert!(running.begin_below(2).is_none());
        drop(first);
        let mut idle = std::pin::pin!(running.idle());
        assert!(idle.as_mut().now_or_never().is_none());
        drop(second);
        assert!(idle.now_or_never().is_some());
        assert!(running.begin_below(2).is_some());
    }
}
