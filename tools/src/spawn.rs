//! The one place where this crate spawns async work.

use std::future::Future;

use futures_util::future::BoxFuture;
use portcullis_types::ToolError;
use tokio::task::JoinSet;

/// Drives a future on a thread of its own that may be blocked, and returns what it gives.
///
/// # Cancellation
/// Dropping the returned future leaves the thread to itself; the inner future must end by its own deadline.
pub(crate) async fn blocking<T: Send + 'static>(
    future: impl Future<Output = T> + Send + 'static,
) -> Result<T, ToolError> {
    let handle = tokio::runtime::Handle::current();
    tokio::task::spawn_blocking(move || handle.block_on(future))
        .await
        .map_err(|error| ToolError::internal(error.to_string()))
}

/// Drives a future that has to put things in order at its end, whether or not anybody still waits for it, and
/// returns what it gives. It is boxed, since it may make calls like the one that it is part of.
///
/// # Cancellation
/// Dropping the returned future leaves the work to itself; the inner future must end by its own deadline.
pub(crate) async fn to_its_end<T: Send + 'static>(future: BoxFuture<'static, T>) -> Result<T, ToolError> {
    #[expect(clippy::disallowed_methods, reason = "this is the module to spawn through")]
    let task = tokio::spawn(future);
    task.await.map_err(|error| ToolError::internal(error.to_string()))
}

/// Drives a future in a task of its own, and returns what it gives; nothing if it panics. One that blocks its thread
/// does not keep whoever waits from giving up, where the runtime has other threads.
///
/// # Cancellation
/// Dropping the returned future ends the task where it waits next.
pub(crate) async fn apart<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let mut task = JoinSet::new();
    task.spawn(future);
    task.join_next().await?.ok()
}

/// Drives a short future to its end, whoever waits: a last word to a sidecar. On a runtime that is gone it is dropped.
pub(crate) fn detached(runtime: &tokio::runtime::Handle, future: impl Future<Output = ()> + Send + 'static) {
    runtime.spawn(future);
}
