//! [`InFlight`]: the unanswered requests of a client.

use std::{
    collections::{HashSet, VecDeque},
    hash::{BuildHasher as _, RandomState},
};

use rmcp::model::RequestId;
use tokio::sync::watch;

/// How many cancelled requests are remembered.
const CANCELLED: usize = 1024;

/// The ids of requests that were accepted and not yet answered.
#[derive(Debug, Default)]
pub(super) struct InFlight {
    awaited: watch::Sender<HashSet<RequestId>>,
    /// Hashes of the ids of the last cancelled requests. These get no answer, but messages about them may
    /// still be on their way.
    cancelled: VecDeque<u64>,
    hasher: RandomState,
}

impl InFlight {
    /// Accepts a request, unless one with its id is still unanswered or was cancelled: messages about the two
    /// would be ambiguous.
    pub(super) fn begin(&self, id: &RequestId) -> bool {
        !self.cancelled.contains(&self.hasher.hash_one(id))
            && self.awaited.send_if_modified(|ids| ids.insert(id.clone()))
    }

    /// Marks a request as answered.
    pub(super) fn end(&self, id: &RequestId) {
        self.awaited.send_if_modified(|ids| ids.remove(id));
    }

    /// Marks a request as cancelled; it gets no answer.
    pub(super) fn cancel(&mut self, id: &RequestId) {
        if self.awaited.send_if_modified(|ids| ids.remove(id)) {
            // Makes room for one more: the oldest is forgotten.
            self.cancelled.truncate(CANCELLED - 1);
            self.cancelled.push_front(self.hasher.hash_one(id));
        }
    }

    /// Waits until no request is unanswered.
    ///
    /// # Cancellation
    /// Safe.
    pub(super) fn none(&self) -> impl Future<Output = ()> + Send + use<> {
        let mut awaited = self.awaited.subscribe();
        async move {
            // An error means that the sender is gone, and all its requests with it.
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
        let in_flight = InFlight::default();
        let (one, other) = (RequestId::Number(1), RequestId::String("1".into()));
        assert!(in_flight.none().now_or_never().is_some());
        assert!(in_flight.begin(&one) && in_flight.begin(&other));
        assert!(!in_flight.begin(&one));
        in_flight.end(&one);
        assert!(in_flight.none().now_or_never().is_none());
        assert!(in_flight.begin(&one));
        in_flight.end(&one);
        in_flight.end(&other);
        in_flight.end(&other);
        assert!(in_flight.none().now_or_never().is_some());
    }

    #[test]
    fn a_cancelled_request_is_not_waited_for_and_its_id_stays_taken() {
        let mut in_flight = InFlight::default();
        let ids = |range: std::ops::RangeInclusive<i64>| range.map(RequestId::Number);
        for id in ids(0..=1024) {
            assert!(in_flight.begin(&id));
            in_flight.cancel(&id);
            in_flight.cancel(&RequestId::Number(7_000));
        }
        assert!(in_flight.none().now_or_never().is_some());
        assert!(ids(1..=1024).all(|id| !in_flight.begin(&id)));
        // An id that was never used, or cancelled long ago, is free.
        assert!(in_flight.begin(&RequestId::Number(7_000)) && in_flight.begin(&RequestId::Number(0)));
    }
}
