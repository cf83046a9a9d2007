//! [`SeenCalls`]: the calls that a worker has begun, so that it answers each call once.

use std::collections::{HashSet, VecDeque};

/// The maximum number of answered calls that are remembered. A call can arrive twice: in the list
/// and in an event, or in an event that the gateway repeats after a lost connection.
const MAX_ANSWERED: usize = 10_000;

/// The calls that a worker has begun.
#[derive(Debug, Default)]
pub(super) struct SeenCalls {
    in_flight: HashSet<String>,
    answered_calls: HashSet<String>,
    /// The answered calls in order, the oldest first.
    order: VecDeque<String>,
}

impl SeenCalls {
    /// Marks a call as in flight. Returns `false` if it is already, or has been answered.
    pub(super) fn begin(&mut self, call: &str) -> bool {
        !self.answered_calls.contains(call) && self.in_flight.insert(call.to_owned())
    }

    /// Marks a call as answered.
    pub(super) fn answered(&mut self, call: String) {
        self.in_flight.remove(&call);
        if self.answered_calls.insert(call.clone()) {
            self.order.push_back(call);
        }
        if self.order.len() > MAX_ANSWERED
            && let Some(oldest) = self.order.pop_front()
        {
            self.answered_calls.remove(&oldest);
        }
    }

    /// Forgets a call whose result could not be submitted. The next list contains it again.
    pub(super) fn forget(&mut self, call: &str) {
        self.in_flight.remove(call);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_begun_once() {
        let mut seen = SeenCalls::default();
        assert!(seen.begin("a"));
        assert!(!seen.begin("a"), "it is under way");
        seen.answered("a".to_owned());
        assert!(!seen.begin("a"), "it is answered");
        assert!(seen.begin("b"));
        seen.forget("b");
        assert!(seen.begin("b"));
    }

    #[test]
    fn the_memory_is_bounded_and_keeps_calls_under_way() {
        let mut seen = SeenCalls::default();
        assert!(seen.begin("slow"));
        for number in 0..=MAX_ANSWERED {
            assert!(seen.begin(&number.to_string()));
            seen.answered(number.to_string());
        }
        assert_eq!((seen.answered_calls.len(), seen.order.len()), (MAX_ANSWERED, MAX_ANSWERED));
        assert!(seen.begin("0"), "the oldest is forgotten");
        assert!(!seen.begin("1"));
        assert!(!seen.begin("slow"));
    }
}
