//! Waits for answers in the store: results of external calls, and decisions about approvals.

use std::{sync::Arc, time::Duration};

use portcullis_store::RunStore;
use tokio::sync::broadcast::{self, error::RecvError};

/// How often the store is polled for an answer from another process: 250 ms.
const POLL_INTERVAL: Duration = Duration::from_millis(250);

/// The answers to one call or approval question.
pub(crate) struct Answers<'a> {
    id: &'a str,
    of_this_process: broadcast::Receiver<Arc<str>>,
}

impl<'a> Answers<'a> {
    /// Begins to listen. Read the store after this call, so that no answer is missed in between.
    pub(crate) fn new(store: &dyn RunStore, id: &'a str) -> Self {
        Self { id, of_this_process: store.answers() }
    }

    /// Waits until the store should be read again.
    pub(crate) async fn wait_for_possible_answer(&mut self) {
        let answered = async {
            loop {
                match self.of_this_process.recv().await {
                    Ok(id) if *id != *self.id => {}
                    Ok(_) | Err(RecvError::Lagged(_)) => return,
                    // The store is closed. The next read reports that.
                    Err(RecvError::Closed) => std::future::pending().await,
                }
            }
        };
        // A timeout is not an error: the next read finds answers from other processes.
        let _ = tokio::time::timeout(POLL_INTERVAL, answered).await;
    }
}
