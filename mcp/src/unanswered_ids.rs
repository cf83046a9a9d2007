//! [`UnansweredIds`]: the unanswered requests of a client on standard streams. `http/open_requests.rs` does
//! the same for HTTP, where many sessions share one service.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher as _, RandomState},
};

use rmcp::model::RequestId;
use tokio::sync::watch;

/// The maximum number of cancelled requests whose ids are remembered.
const MAX_CANCELLED: usize = 1024;

/// The ids of requests that were accepted but not answered yet.
#[derive(Debug, Default)]
pub(super) struct UnansweredIds {
    awaited: watch::Sender<HashSet<RequestId>>,
    /// Hashes of the ids of the last cancelled requests. Cancelled requests get no answer, but messages about
    /// them may still be in flight.
    cancelled: VecDeque<u64>,
    hasher: RandomState,
}

impl UnansweredIds {
    /// Accepts a request. Refuses it if another request with its id is unanswered or was cancelled, because
    /// messages about the two would be ambiguous.
    pub(super) fn begin(&self, id: &RequestId) -> bool {
        !self.cancelled.contains(&self.hasher.hash_one(id))
            && self.awaited.send_if_modified(|ids| ids.insert(id.clone()))
    }

    /// Marks a request as answered.
    pub(super) fn end(&self, id: &RequestId) {
        self.awaited.send_if_modified(|ids| ids.remove(id));
    }

    /// Marks a request as cancelled. It gets no answer.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if self.awaited.send_if_modified(|ids| ids.remove(id)) {
            // Make room for the new id by forgetting the oldest.
            self.cancelled.truncate(MAX_CANCELLED - 1);
            self.cancelled.push_front(self.hasher.hash_one(id));
        }
    }

    /// Waits until no request is unanswered.
    ///
    /// # Cancellation
    /// Dropping the future has no effect.
    pub(super) fn wait_until_empty(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut awaited = self.awaited.subscribe();
        async move {
            // An error means that the sender was dropped, and its requests with it.
            let _ = awaited.wait_for(HashSet::is_empty).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    #[test]
    fn an_id_is_free_again_when_its_request_is_answered() {
        let unanswered_ids = UnansweredIds::default();
        let (number_id, string_id) = (RequestId::Number(1), RequestId::String("1".into()));
        assert!(unanswered_ids.wait_until_empty().now_or_never().is_some());
        assert!(unanswered_ids.begin(&number_id) && unanswered_ids.begin(&string_id));
        assert!(!unanswered_ids.begin(&number_id));
        unanswered_ids.end(&number_id);
        assert!(unanswered_ids.wait_until_empty().now_or_never().is_none());
        assert!(unanswered_ids.begin(&number_id));
        unanswered_ids.end(&number_id);
        unanswered_ids.end(&string_id);
        unanswered_ids.end(&string_id);
        assert!(unanswered_ids.wait_until_empty().now_or_never().is_some());
    }

    #[test]
    fn a_cancelled_request_is_not_waited_for_and_its_id_stays_taken() {
        let mut unanswered_ids = UnansweredIds::default();
        let ids = |range: std::ops::RangeInclusive<i64>| range.map(RequestId::Number);
        for id in ids(0..=1024) {
            assert!(unanswered_ids.begin(&id));
            unanswered_ids.cancel(&id);
            unanswered_ids.cancel(&RequestId::Number(7_000));
        }
        assert!(unanswered_ids.wait_until_empty().now_or_never().is_some());
        assert!(ids(1..=1024).all(|id| !unanswered_ids.begin(&id)));
        // An id that was never used, or whose cancellation was forgotten, is free.
        assert!(
            unanswered_ids.begin(&RequestId::Number(7_000)) && unanswered_ids.begin(&RequestId::Number(0))
        );
    }
}
