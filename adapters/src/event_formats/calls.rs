//! [`TrackedCalls`]: the state that an event format keeps for calls in progress.

use std::collections::HashMap;

/// The maximum number of calls of a run that an event format tracks at a time, so that a model's calls cannot fill the
/// memory. Events of further calls lack the tool's name, unless the event itself has it.
pub const MAX_OPEN_CALLS: usize = 1024;

/// The states of tracked calls, by call id.
#[derive(Debug, Default)]
pub(super) struct TrackedCalls<T> {
    calls: HashMap<String, T>,
}

impl<T> TrackedCalls<T> {
    /// Returns the state of a call, and tracks the call from now on. Returns `None` if too many calls are
    /// tracked already.
    pub(super) fn open(&mut self, call_id: &str, create: impl FnOnce() -> T) -> Option<&mut T> {
        // The limit applies only to new calls. A tracked call keeps its state.
        if !self.calls.contains_key(call_id) {
            if self.calls.len() >= MAX_OPEN_CALLS {
                return None;
            }
            self.calls.insert(call_id.to_owned(), create());
        }
        self.calls.get_mut(call_id)
    }

    /// Returns the state of a tracked call.
    pub(super) fn get(&self, call_id: &str) -> Option<&T> {
        self.calls.get(call_id)
    }

    pub(super) fn is_tracked(&self, call_id: &str) -> bool {
        self.calls.contains_key(call_id)
    }

    /// Stops tracking a call, and returns its state.
    pub(super) fn close(&mut self, call_id: &str) -> Option<T> {
        self.calls.remove(call_id)
    }

    /// Stops tracking the matching calls, and returns them in order of their ids.
    pub(super) fn close_where(&mut self, mut is_over: impl FnMut(&T) -> bool) -> Vec<(String, T)> {
        let mut closed: Vec<(String, T)> = self.calls.extract_if(|_, call| is_over(call)).collect();
        // Sort by id: a hash map has no stable order, and the events of equal runs must be equal.
        closed.sort_unstable_by(|(left_id, _), (right_id, _)| left_id.cmp(right_id));
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_calls_are_remembered_than_the_limit() {
        let mut calls = TrackedCalls::default();
        for n in 0..MAX_OPEN_CALLS {
            assert!(calls.open(&n.to_string(), || n).is_some());
        }
        assert!(calls.open("one more", || 0).is_none() && !calls.is_tracked("one more"));
        assert!(calls.open("0", || 1).is_some(), "a known one goes on");
        assert_eq!(calls.close("0"), Some(0));
        assert!(calls.open("one more", || 7).is_some(), "a place is free again");
        let even = calls.close_where(|n| n % 2 == 0);
        assert_eq!(
            (even.len(), even[0].0.as_str()),
            (MAX_OPEN_CALLS / 2 - 1, "10"),
            "`0` is gone, and 7 is odd"
        );
    }
}
