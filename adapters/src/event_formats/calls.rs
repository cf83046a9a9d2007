//! [`OpenCalls`]: the calls that are going on, as far as a form must remember them.

use std::collections::HashMap;

/// How many calls of a run a form remembers at once. A model that asks for more costs a form no more memory:
/// what it says of the others lacks the tool's name where the event does not have it.
pub const MAX_OPEN_CALLS: usize = 1024;

/// Calls by id, each with what a form wants to know of it.
#[derive(Debug, Default)]
pub(super) struct OpenCalls<T> {
    calls: HashMap<String, T>,
}

impl<T> OpenCalls<T> {
    /// The call, which is remembered from now on; none if there are too many.
    pub(super) fn open(&mut self, call_id: &str, new: impl FnOnce() -> T) -> Option<&mut T> {
        if !self.calls.contains_key(call_id) {
            if self.calls.len() >= MAX_OPEN_CALLS {
                return None;
            }
            self.calls.insert(call_id.to_owned(), new());
        }
        self.calls.get_mut(call_id)
    }

    /// The call, if it is remembered.
    pub(super) fn get(&self, call_id: &str) -> Option<&T> {
        self.calls.get(call_id)
    }

    /// Whether the call is remembered.
    pub(super) fn has(&self, call_id: &str) -> bool {
        self.calls.contains_key(call_id)
    }

    /// Forgets the call.
    pub(super) fn close(&mut self, call_id: &str) -> Option<T> {
        self.calls.remove(call_id)
    }

    /// Forgets those calls, and gives them in the order of their ids.
    pub(super) fn close_where(&mut self, mut is_over: impl FnMut(&T) -> bool) -> Vec<(String, T)> {
        let mut closed: Vec<(String, T)> = self.calls.extract_if(|_, call| is_over(call)).collect();
        closed.sort_unstable_by(|(one, _), (other, _)| one.cmp(other));
        closed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_more_calls_are_remembered_than_the_limit() {
        let mut calls = OpenCalls::default();
        for n in 0..MAX_OPEN_CALLS {
            assert!(calls.open(&n.to_string(), || n).is_some());
        }
        assert!(calls.open("one more", || 0).is_none() && !calls.has("one more"));
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
