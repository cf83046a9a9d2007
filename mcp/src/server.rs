//! [`McpServer`]: serves a registry, and holds the state that all sessions share.

use std::{
    fmt,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
};

use parking_lot::Mutex;
use portcullis_tools::{ExternalCalls, ToolChanges, ToolRegistry, approval::Approver};
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

/// A server for one registry. Clones share the same state.
///
/// Every call of every client goes through [`ToolRegistry::execute_with_policy`]. By default, the client is
/// asked for approvals if it supports elicitation. [`McpServer::approver`] sets another approver.
#[derive(Clone)]
pub struct McpServer {
    state: Arc<ServerState>,
}

/// State shared by all sessions.
struct ServerState {
    offered_registry: watch::Sender<Arc<OfferedRegistry>>,
    approver: Mutex<Option<Arc<dyn Approver>>>,
    external_calls: OnceLock<Arc<dyn ExternalCalls>>,
    clients: Clients,
    limits: McpLimits,
    server_calls: CallsInProgress,
}

/// A registry, and its tools as clients see them.
pub(super) struct OfferedRegistry {
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) tools: Vec<Tool>,
    /// Whether the registry has changed since `tools` was listed.
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

    /// Like [`McpServer::new`], for native tools that talk to the client that calls them. These tools share
    /// the [`Clients`].
    ///
    /// # Errors
    /// The errors of [`McpServer::new`].
    pub fn with_clients(
        registry: Arc<ToolRegistry>,
        limits: McpLimits,
        clients: Clients,
    ) -> Result<Self, McpError> {
        let (offered, _) = watch::channel(build_offer(registry)?);
        let shared = ServerState {
            offered_registry: offered,
            approver: Mutex::new(None),
            external_calls: OnceLock::new(),
            clients,
            limits,
            server_calls: CallsInProgress::default(),
        };
        Ok(Self { state: Arc::new(shared) })
    }

    /// Sends all approval requests to this approver instead of the client.
    #[must_use]
    pub fn approver(self, approver: Arc<dyn Approver>) -> Self {
        *self.state.approver.lock() = Some(approver);
        self
    }

    /// Stores the calls of external tools here. Default: such calls fail. Only the first value is used.
    #[must_use]
    pub fn external_calls(self, calls: Arc<dyn ExternalCalls>) -> Self {
        let _ = self.state.external_calls.set(calls);
        self
    }

    pub(super) fn kept_external_calls(&self) -> Option<Arc<dyn ExternalCalls>> {
        self.state.external_calls.get().cloned()
    }

    /// Returns the registry that is being served.
    #[must_use]
    pub fn registry(&self) -> Arc<ToolRegistry> {
        Arc::clone(&self.offered().registry)
    }

    /// Serves another registry from now on. Running calls finish in the old registry. The labels of running
    /// sessions are kept. Clients are notified if the list of tools changes.
    ///
    /// # Errors
    /// The errors of [`McpServer::new`]. Then nothing changes.
    pub fn replace(&self, registry: Arc<ToolRegistry>) -> Result<(), McpError> {
        let next = build_offer(registry)?;
        next.registry.continue_runs_of(&self.offered().registry);
        self.state.offered_registry.send_replace(next);
        Ok(())
    }

    pub(super) fn session(&self, presence: ClientPresence) -> Result<ClientSession, McpError> {
        ClientSession::new(self.clone(), presence)
    }

    /// Waits until all of these cancelled calls have ended. When the server is stopping, waits at most
    /// [`McpLimits::stop_timeout`].
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub(super) async fn wait_for_cancelled_calls(&self, calls: &CallsInProgress, stop: &CancellationToken) {
        let too_late = async {
            stop.cancelled().await;
            tokio::time::sleep(self.state.limits.stop_timeout).await;
        };
        tokio::select! {
            () = calls.wait_until_idle() => {}
            () = too_late => tracing::warn!("some calls did not end in time"),
        }
    }

    /// Returns the registry that is being served, with its current tools.
    pub(super) fn offered(&self) -> Arc<OfferedRegistry> {
        let known = Arc::clone(&self.state.offered_registry.borrow());
        if !known.changes.has_changed() {
            return known;
        }
        self.list_again(&known);
        Arc::clone(&self.state.offered_registry.borrow())
    }

    /// Updates the offered tools after a call, because the call may have shown that a tool cannot run.
    /// Clients are notified if the list changes.
    pub(super) fn recheck_shell(&self, known: &Arc<OfferedRegistry>) {
        if known.registry.offered().len() != known.tools.len() {
            self.list_again(known);
        }
    }

    fn list_again(&self, known: &Arc<OfferedRegistry>) {
        let relisted = build_offer(Arc::clone(&known.registry)).unwrap_or_else(|error| {
            tracing::warn!(error = &error as &dyn std::error::Error, "the list of tools was not changed");
            // Restart `changes`. Otherwise every request would list the tools again, and warn again.
            let (registry, changes) = (Arc::clone(&known.registry), known.registry.changes());
            Arc::new(OfferedRegistry { registry, tools: known.tools.clone(), changes })
        });
        // Another registry may have replaced this one in the meantime. Do not overwrite its list.
        let _is_changed = self.state.offered_registry.send_if_modified(|served| {
            let is_same = Arc::ptr_eq(&served.registry, &known.registry);
            if is_same {
                *served = relisted;
            }
            is_same
        });
    }

    /// Returns a receiver that is notified when the offered tools change.
    pub(super) fn changes(&self) -> watch::Receiver<Arc<OfferedRegistry>> {
        self.state.offered_registry.subscribe()
    }

    pub(super) fn configured_approver(&self) -> Option<Arc<dyn Approver>> {
        self.state.approver.lock().clone()
    }

    pub(super) fn limits(&self) -> &McpLimits {
        &self.state.limits
    }

    pub(super) fn clients(&self) -> &Clients {
        &self.state.clients
    }

    /// Returns the counter of the calls of all sessions.
    pub(super) fn server_calls(&self) -> &CallsInProgress {
        &self.state.server_calls
    }
}

impl fmt::Debug for McpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("McpServer")
            .field("tools", &self.offered().tools.len())
            .field("limits", &self.state.limits)
            .finish_non_exhaustive()
    }
}

fn build_offer(registry: Arc<ToolRegistry>) -> Result<Arc<OfferedRegistry>, McpError> {
    // Take `changes` before reading the tools, so that a change in between is noticed.
    let changes = registry.changes();
    let tools = listing::tools(&registry)?;
    Ok(Arc::new(OfferedRegistry { registry, tools, changes }))
}

/// Counts running calls.
#[derive(Debug, Clone, Default)]
pub(super) struct CallsInProgress {
    count: Arc<CallCount>,
}

#[derive(Debug, Default)]
struct CallCount {
    running: AtomicUsize,
    /// Notified when the last running call has ended.
    idle: Notify,
}

/// Counts one running call until it is dropped.
#[derive(Debug)]
pub(super) struct CallInProgress {
    count: Arc<CallCount>,
}

impl CallsInProgress {
    pub(super) fn begin(&self) -> CallInProgress {
        self.count.running.fetch_add(1, Ordering::SeqCst);
        CallInProgress { count: Arc::clone(&self.count) }
    }

    /// Counts another call, unless `limit` calls are running.
    pub(super) fn try_begin(&self, limit: usize) -> Option<CallInProgress> {
        let increment = |count: usize| (count < limit).then_some(count + 1);
        self.count.running.fetch_update(Ordering::SeqCst, Ordering::SeqCst, increment).ok()?;
        Some(CallInProgress { count: Arc::clone(&self.count) })
    }

    /// Waits until no call is running.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub(super) async fn wait_until_idle(&self) {
        loop {
            // Register as a waiter before the check, so that a notification in between is not missed.
            let all_ended = self.count.idle.notified();
            let mut all_ended = std::pin::pin!(all_ended);
            all_ended.as_mut().enable();
            if self.count.running.load(Ordering::SeqCst) == 0 {
                return;
            }
            all_ended.await;
        }
    }
}

impl Drop for CallInProgress {
    fn drop(&mut self) {
        if self.count.running.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.count.idle.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn calls_are_counted_bounded_and_waited_for() {
        let running = CallsInProgress::default();
        assert!(running.wait_until_idle().now_or_never().is_some());
        let first = running.try_begin(2).expect("a free slot");
        let second = running.try_begin(2).expect("a free slot");
        assert!(running.try_begin(2).is_none());
        drop(first);
        let mut idle = std::pin::pin!(running.wait_until_idle());
        assert!(idle.as_mut().now_or_never().is_none());
        drop(second);
        assert!(idle.now_or_never().is_some());
        assert!(running.try_begin(2).is_some());
    }
}
