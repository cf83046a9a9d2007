//! The one module of this crate that spawns tasks and threads.

use std::future::Future;

use futures_util::future::BoxFuture;
use portcullis_types::ToolError;
use tokio::task::JoinSet;

/// Drives a future on a separate thread that it may block, and returns its output.
///
/// # Cancellation
/// Dropping the returned future detaches the thread; the inner future must end by its own deadline.
pub(crate) async fn blocking<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, ToolError> {
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || handle.block_on(future))
        .await
        .map_err(|error| ToolError::internal(error.to_string()))
}

/// Drives a future that must clean up at its end, even if its caller stops waiting, and returns its output.
/// Boxed, since it may make calls like the one that it is part of.
///
/// # Cancellation
/// Dropping the returned future detaches the task; the inner future must end by its own deadline.
pub(crate) async fn to_its_end<T: Send + 'static>(future: BoxFuture<'static, T>) -> Result<T, ToolError> {
    #[expect(clippy::disallowed_methods, reason = "this is the module to spawn through")]
    let task = tokio::spawn(future);
    task.await.map_err(|error| ToolError::internal(error.to_string()))
}

/// Drives a future in a separate task and returns its output; none if it panics. If it blocks its thread, the
/// caller can still give up, as long as the runtime has other threads.
///
/// # Cancellation
/// Dropping the returned future aborts the task at its next await.
pub(crate) async fn spawn_task<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let mut task = JoinSet::new();
    task.spawn(future);
    task.join_next().await?.ok()
}

/// Drives a short future to its end without waiting, such as a last message to a sidecar. If the runtime is
/// gone, the future is dropped.
pub(crate) fn detached(runtime: &tokio::runtime::Handle, future: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(future);
}
