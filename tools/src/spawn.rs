//! Spawns tasks and threads. The only other module that does so is `web/http_client.rs`, which reads secrets
//! on a blocking thread.

use std::future::Future;

use futures_util::future::BoxFuture;
use portcullis_types::ToolError;
use tokio::task::JoinSet;

/// Drives a future on a separate thread, which it may block, and returns its output.
///
/// # Cancellation
/// If the returned future is dropped, the thread continues. The inner future must therefore
/// have its own deadline.
pub(crate) async fn spawn_blocking<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, ToolError> {
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || handle.block_on(future))
        .await
        .map_err(|error| ToolError::internal(error.to_string()))
}

/// Drives a future that must clean up at its end even if its caller stops waiting, and returns its output.
/// The future is boxed, because its type can contain itself: it can make calls like the one that contains it.
///
/// # Cancellation
/// If the returned future is dropped, the task continues. The inner future must therefore
/// have its own deadline.
pub(crate) async fn run_to_completion<T: Send + 'static>(
    future: BoxFuture<'static, T>,
) -> Result<T, ToolError> {
    #[expect(clippy::disallowed_methods, reason = "this is the module to spawn through")]
    let task = tokio::spawn(future);
    task.await.map_err(|error| ToolError::internal(error.to_string()))
}

/// Drives a future in a separate task, and returns its output. `None` if it panics. If the future blocks its
/// thread, the caller can still give up, as long as the runtime has other threads.
///
/// # Cancellation
/// If the returned future is dropped, the task is aborted at its next await.
pub(crate) async fn spawn_task<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut task = JoinSet::new();
    task.spawn(future);
    task.join_next().await?.ok()
}

/// Drives a short future to completion without waiting for it, such as a last message to a sidecar. If the
/// runtime has shut down, the future is dropped.
pub(crate) fn spawn_detached(
    runtime: &tokio::runtime::Handle,
    future: impl Future<Output = ()> + Send + 'static,
) {
    runtime.spawn(future);
}
