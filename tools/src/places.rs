//! How many calls run at once: ten places by default, and a bounded queue before them.

use std::sync::{
    Arc,
    atomic::{AtomicUsize, Ordering},
};

use portcullis_types::{CancellationToken, ToolError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that may wait for a place; one more is refused, so that a flood of calls costs no memory.
pub(crate) const MAX_QUEUED: usize = 1024;

/// Hands out the places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    queued: AtomicUsize,
}

/// A place that a call has. Calls made by a tool share their parent's.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    _permit: Arc<OwnedSemaphorePermit>,
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), queued: AtomicUsize::new(0) }
    }

    /// Takes a place, waiting for one if need be.
    ///
    /// # Cancellation
    /// A dropped or cancelled wait leaves the queue.
    pub(crate) async fn take(&self, cancel: &CancellationToken) -> Result<Place, ToolError> {
        if cancel.is_cancelled() {
            return Err(ToolError::cancelled("the call was cancelled before it ran"));
        }
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(cancel).await?,
        };
        Ok(Place { _permit: Arc::new(permit) })
    }

    async fn wait(&self, cancel: &CancellationToken) -> Result<OwnedSemaphorePermit, ToolError> {
        let Some(_queued) = Queued::enter(&self.queued) else {
            let message = format!("{MAX_QUEUED} calls are waiting already; try again later");
            return Err(ToolError::resource_limit(message).with_code("queue_full"));
        };
        // In this order: a batch that is cancelled frees places, and none of its own may take them.
        tokio::select! {
            biased;
            () = cancel.cancelled() => Err(ToolError::cancelled("the call was cancelled before it ran")),
            permit = Arc::clone(&self.free).acquire_owned() => {
                permit.map_err(|closed| ToolError::internal(closed.to_string()))
            }
        }
    }
}

/// Counts a waiting call until it is dropped.
struct Queued<'a>(&'a AtomicUsize);

impl<'a> Queued<'a> {
    fn enter(count: &'a AtomicUsize) -> Option<Self> {
        let entered = count.fetch_update(Ordering::AcqRel, Ordering::Acquire, |queued| {
            (queued < MAX_QUEUED).then_some(queued + 1)
        });
        entered.is_ok().then(|| Self(count))
    }
}

impl Drop for Queued<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolErrorKind;

    use super::*;

    #[tokio::test]
    async fn the_queue_is_bounded_and_a_cancelled_wait_leaves_it() {
        let places = Arc::new(Places::new(1));
        let held = places.take(&CancellationToken::new()).await.expect("free");
        let cancel = CancellationToken::new();
        let mut waiting: Vec<_> = (0..MAX_QUEUED)
            .map(|_| {
                let (places, cancel) = (Arc::clone(&places), cancel.clone());
                Box::pin(async move { places.take(&cancel).await })
            })
            .collect();
        for wait in &mut waiting {
            assert!(futures_util::poll!(wait).is_pending());
        }
        let refused = places.take(&CancellationToken::new()).await.expect_err("full");
        assert_eq!((refused.kind(), refused.code()), (ToolErrorKind::ResourceLimit, "queue_full"));
        cancel.cancel();
        for wait in waiting {
            assert_eq!(wait.await.expect_err("cancelled").kind(), ToolErrorKind::Cancelled);
        }
        assert_eq!(places.queued.load(Ordering::Acquire), 0);
        drop(held);
        places.take(&CancellationToken::new()).await.expect("free again");
    }
}
