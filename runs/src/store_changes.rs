//! Waits for changes of the store: results of external calls, and decisions about approvals.

use std::{sync::Arc, time::Duration};

use portcullis_store::RunStore;
use tokio::sync::broadcast::{self, error::RecvError};

/// How often the store is polled for a change by another process: 250 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The changes of one call or approval question.
pub(crate) struct StoreChanges<'a> {
    id: &'a str,
    of_this_process: broadcast::Receiver<Arc<str>>,
}

impl<'a> StoreChanges<'a> {
    /// Begins to listen. Read the store after this call, so that no change is missed in between.
    pub(crate) fn new(store: &dyn RunStore, id: &'a str) -> Self {
        Self { id, of_this_process: store.answers() }
    }

    /// Waits until the store should be read again.
    pub(crate) async fn wait_for_possible_change(&mut self) {
        let changed = async {
            loop {
                match self.of_this_process.recv().await {
                    Ok(id) if *id != *self.id => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    // The store is closed. The next read reports that.
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        // A timeout is not an error: the next read finds changes by other processes.
        let _ = tokio::time::timeout(POLL_INTERVAL, changed).await;
    }
}
