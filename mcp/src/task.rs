//! Spawns the server's async tasks. Only HTTP connections run elsewhere, in the tasks of
//! `portcullis-http-server`.

use std::future::Future;

use tokio::task::{AbortHandle, JoinHandle};

/// Runs a future in a task until it ends or the returned handle is dropped.
pub(super) fn spawn(future: impl Future<Output = ()> + Send + 'static) -> AbortOnDrop {
    AbortOnDrop(spawn_detached(future).abort_handle())
}

/// Runs a short future to its end, even if its handle is dropped. Used for last messages to a client.
pub(super) fn spawn_detached(future: impl Future<Output = ()> + Send + 'static) -> JoinHandle<()> {
    #[expect(clippy::disallowed_methods, reason = "this is the module to spawn through")]
    tokio::spawn(future)
}

/// A task that is aborted when its owner drops it.
#[derive(Debug)]
pub(super) struct AbortOnDrop(AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
