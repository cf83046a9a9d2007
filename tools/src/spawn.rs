//! The one place where this crate spawns async work.

use std::future::Future;

use portcullis_types::ToolError;

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
