//! [`McpServer`]: serves a registry, and holds the state that all sessions share.

use std::{
    fmt,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
};

use portcullis_tools::{ToolChanges, ToolRegistry, approval::Approver};
use portcullis_types::CancellationToken;
use rmcp::model::Tool;
use tokio::sync::{Notify, watch};

use super::{
    McpError,
    client::Clients,
    limits::McpLimits,
    listing,
    session::{ClientPresence, ClientSession},
};

/// A server for one registry. Clones share it.
///
/// Every call of every client goes through [`ToolRegistry::execute_with_policy`]. By default approvals are
/// asked for through the client, if it supports that; [`McpServer::approver`] sets another approver.
#[derive(Clone)]
pub struct McpServer {
    shared: Arc<ServerState>,
}

/// State shared by all sessions.
struct ServerState {
    offered: watch::Sender<Arc<OfferedRegistry>>,
    approver: Mutex<Option<Arc<dyn Approver>>>,
    clients: Clients,
    limits: McpLimits,
    running: RunningCalls,
}

/// A registry, and its tools as clients see them.
pub(super) struct OfferedRegistry {
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) tools: Vec<Tool>,
    /// The registry's changes since then.
    pub(super) changes: ToolChanges,
}

impl McpServer {
    /// Creates a server for this registry.
    ///
    /// # Errors
    /// [`McpError::Listing`] if a tool cannot be described in the protocol.
    pub fn new(registry: Arc<ToolRegistry>, limits: McpLimits) -> Result<Self, McpError> {
        Self::with_clients(registry, limits, Clients::default())
    }

    /// As [`McpServer::new`], for tools of this process that talk to the client that calls them: they hold
    /// the same [`Clients`].
    ///
    /// # Errors
    /// As [`McpServer::new`].
    pub fn with_clients(
        registry: Arc<ToolRegistry>,
        limits: McpLimits,
        clients: Clients,
    ) -> Result<Self, McpError> {
        let (offered, _) = watch::channel(offered(registry)?);
        let (approver, running) = (Mutex::new(None), RunningCalls::default());
        Ok(Self { shared: Arc::new(ServerState { offered, approver, clients, limits, running }) })
    }

    /// Sends all approval requests to this approver instead of the client.
    #[must_use]
    pub fn approver(self, approver: Arc<dyn Approver>) -> Self {
        *self.shared.approver.lock().unwrap_or_else(PoisonError::into_inner) = Some(approver);
        self
    }

    /// Serves another registry from now on. Running calls end in the old one. The labels of running sessions
    /// are kept. Clients are notified if the list of tools changes.
    ///
    /// # Errors
    /// As [`McpServer::new`]; then nothing changes.
    pub fn replace(&self, registry: Arc<ToolRegistry>) -> Result<(), McpError> {
        let next = offered(registry)?;
        next.registry.continue_runs_of(&self.offered().registry);
        self.shared.offered.send_replace(next);
        Ok(())
    }

    /// Waits until no call runs. To cancel the calls, end their transport.
    ///
    /// # Cancellation
    /// Safe.
    pub async fn idle(&self) {
        self.shared.running.idle().await;
    }

    pub(super) fn session(&self, presence: ClientPresence) -> Result<ClientSession, McpError> {
        ClientSession::new(self.clone(), presence)
    }

    /// Waits until none of these cancelled calls runs; once the server is stopping, at most
    /// [`McpLimits::stop`].
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn idle_unless_late(&self, running: &RunningCalls, stop: &CancellationToken) {
        let late = async {
            stop.cancelled().await;
            tokio::time::sleep(self.shared.limits.stop).await;
        };
        tokio::select! {
            () = running.idle() => {}
            () = late => tracing::warn!("some calls did not end in time"),
        }
    }

    /// The registry that is served, and its tools at this moment.
    pub(super) fn offered(&self) -> Arc<OfferedRegistry> {
        let known = Arc::clone(&self.shared.offered.borrow());
        if !known.changes.has_changed() {
            return known;
        }
        self.list_again(&known);
        Arc::clone(&self.shared.offered.borrow())
    }

    /// Updates the offered tools after a call, which may have found that a tool cannot run. Clients are
    /// notified if the list changes.
    pub(super) fn recheck_shell(&self, known: &Arc<OfferedRegistry>) {
        if known.registry.offered().len() != known.tools.len() {
            self.list_again(known);
        }
    }

    fn list_again(&self, known: &Arc<OfferedRegistry>) {
        let now = offered(Arc::clone(&known.registry)).unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "the list of tools was not changed");
            // With fresh `changes`: otherwise every request would try again, and warn again.
            let (registry, changes) = (Arc::clone(&known.registry), known.registry.changes());
            Arc::new(OfferedRegistry { registry, tools: known.tools.clone(), changes })
        });
        // Skip the update if another registry is served meanwhile.
        let _is_changed = self.shared.offered.send_if_modified(|served| {
            let is_same = Arc::ptr_eq(&served.registry, &known.registry);
            if is_same {
                *served = now;
            }
            is_same
        });
    }

    /// Notifies of changes to the offered tools.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<OfferedRegistry>> {
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

    pub(super) fn running(&self) -> &RunningCalls {
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

fn offered(registry: Arc<ToolRegistry>) -> Result<Arc<OfferedRegistry>, McpError> {
    // Before the tools are read: a change meanwhile is then seen as one.
    let changes = registry.changes();
    let tools = listing::tools(&registry)?;
    Ok(Arc::new(OfferedRegistry { registry, tools, changes }))
}

/// Counter of running calls.
#[derive(Debug, Clone, Default)]
pub(super) struct RunningCalls(Arc<(AtomicUsize, Notify)>);

/// A running call; drop it at the end.
#[derive(Debug)]
pub(super) struct RunningCall(RunningCalls);

impl RunningCalls {
    pub(super) fn begin(&self) -> RunningCall {
        self.0.0.fetch_add(1, Ordering::SeqCst);
        RunningCall(self.clone())
    }

    /// Counts another call, unless `limit` calls run.
    pub(super) fn begin_below(&self, limit: usize) -> Option<RunningCall> {
        let below = |count: usize| (count < limit).then_some(count + 1);
        self.0.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, below).ok()?;
        Some(RunningCall(self.clone()))
    }

    /// Waits until no call runs.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) async fn idle(&self) {
        loop {
            // Register before the check, so that an end in between is not missed.
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
        let running = RunningCalls::default();
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
