//! How many calls run at once: ten places by default, and a bounded queue before them.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use portcullis_types::{CancellationToken, ToolError};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// Calls that may wait for a place; one more is refused, so that a flood of calls costs no memory.
pub(crate) const MAX_QUEUED: usize = 1024;

/// Calls whose work may go on after they were given up, as that of a native tool that blocks its thread.
/// With one more such call nothing runs until one of them comes back.
pub(crate) const MAX_ABANDONED: usize = 64;

/// Hands out the places.
#[derive(Debug)]
pub(crate) struct Places {
    free: Arc<Semaphore>,
    queued: AtomicUsize,
    abandoned: Arc<AtomicUsize>,
}

/// A place that a call has. Calls made by a tool share their parent's.
#[derive(Debug, Clone)]
pub(crate) struct Place(Arc<Held>);

#[derive(Debug)]
struct Held {
    /// None once the call was given up.
    permit: Mutex<Option<OwnedSemaphorePermit>>,
    abandoned: Arc<AtomicUsize>,
}

impl Place {
    /// Leaves the place to the next call though work of this one may go on; such work is counted until it
    /// lets go of the place, too.
    pub(crate) fn abandon(&self) {
        let permit = self.0.permit.lock().unwrap_or_else(PoisonError::into_inner).take();
        if permit.is_some() {
            self.0.abandoned.fetch_add(1, Ordering::AcqRel);
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if self.permit.get_mut().unwrap_or_else(PoisonError::into_inner).is_none() {
            self.abandoned.fetch_sub(1, Ordering::AcqRel);
        }
    }
}

impl Places {
    pub(crate) fn new(count: usize) -> Self {
        Self { free: Arc::new(Semaphore::new(count)), queued: AtomicUsize::new(0), abandoned: Arc::default() }
    }

    /// Takes a place, waiting for one if need be.
    ///
    /// # Cancellation
    /// A dropped or cancelled wait leaves the queue.
    pub(crate) async fn take(&self, cancel: &CancellationToken) -> Result<Place, ToolError> {
        if cancel.is_cancelled() {
            return Err(ToolError::cancelled("the call was cancelled before it ran"));
        }
        let abandoned = self.abandoned.load(Ordering::Acquire);
        if abandoned >= MAX_ABANDONED {
            let message = format!("{abandoned} calls that were given up have not stopped yet");
            return Err(ToolError::unavailable(message).with_code("threads_exhausted"));
        }
        let permit = match Arc::clone(&self.free).try_acquire_owned() {
            Ok(permit) => permit,
            Err(_) => self.wait(cancel).await?,
        };
        let abandoned = Arc::clone(&self.abandoned);
        Ok(Place(Arc::new(Held { permit: Mutex::new(Some(permit)), abandoned })))
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

/// Leaves a place when it is dropped, whoever else still holds it.
#[derive(Debug)]
pub(crate) struct LeaveOnDrop(pub(crate) Place);

impl Drop for LeaveOnDrop {
    fn drop(&mut self) {
        self.0.abandon();
    }
}

#[cfg(test)]
mod tests {
    use portcullis_types::ToolErrorKind;

    use super::*;

    #[tokio::test]
    async fn work_that_does_not_stop_keeps_no_place_but_is_bounded() {
        let places = Places::new(1);
        let cancel = CancellationToken::new();
        let mut still_working = Vec::new();
        for _ in 0..MAX_ABANDONED {
            let place = places.take(&cancel).await.expect("free");
            still_working.push(place.clone());
            drop(LeaveOnDrop(place));
        }
        let refused = places.take(&cancel).await.expect_err("too many");
        assert_eq!((refused.kind(), refused.code()), (ToolErrorKind::Unavailable, "threads_exhausted"));
        still_working.pop();
        let place = places.take(&cancel).await.expect("one came back");
        drop(place);
        drop(still_working);
        assert_eq!(places.abandoned.load(Ordering::Acquire), 0);
    }

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
