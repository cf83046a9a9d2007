//! The one place where the server spawns async work.

use std::future::Future;

use tokio::task::{AbortHandle, JoinHandle};

/// Drives a future beside others until it ends or the returned task is dropped.
pub(super) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> Task {
    Task(detached(future).abort_handle())
}

/// Drives a short future to its end, whoever waits: a last word to a client.
pub(super) fn detached(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the module to spawn through")]
    tokio::spawn(future)
}

/// A task that ends with its owner.
#[derive(Debug)]
pub(super) struct Task(AbortHandle);

impl Drop for Task {
    fn drop(&mut self) {
        self.0.abort();
    }
}
