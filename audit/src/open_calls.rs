//! Tracks which calls are open while rows are read: those with a `begin` but no `end`.

use std::collections::HashMap;

use super::{read::OpenCallFields, row::RowEvent};

/// The open calls in the rows read so far, each with a value from its `begin`.
#[derive(Debug)]
pub(super) struct OpenCalls<T> {
    /// Keyed by process and call id. A list, because models choose call ids, so an id can occur twice.
    begins: HashMap<(String, String), Vec<T>>,
    /// The bytes of the keys and values in `begins`.
    bytes: usize,
    max_bytes: usize,
    omitted_calls: u64,
}

impl<T> OpenCalls<T> {
    /// Keeps at most this many bytes. Further open calls are only counted, because a forged log can have
    /// any number of them.
    pub(super) fn new(max_bytes: usize) -> Self {
        Self { begins: HashMap::new(), bytes: 0, max_bytes, omitted_calls: 0 }
    }

    /// Tracks a row. `value` computes the value of a `begin`, with its size in bytes.
    pub(super) fn track(
        &mut self,
        fields: &OpenCallFields<'_>,
        value: impl FnOnce() -> T,
        size_of: impl Fn(&T) -> usize,
    ) {
        let key_bytes = fields.process.len() + fields.call_id.len();
        let call = || (fields.process.clone().into_owned(), fields.call_id.clone().into_owned());
        match fields.event {
            RowEvent::Begin => {
                let value = value();
                let bytes = key_bytes + size_of(&value);
                if self.bytes.saturating_add(bytes) > self.max_bytes {
                    self.omitted_calls += 1;
                    return;
                }
                self.bytes += bytes;
                self.begins.entry(call()).or_default().push(value);
            }
            RowEvent::End => {
                let call = call();
                // If two open calls share an id, it is unknown which of them this `end` belongs to.
                // Close the later one.
                let closed = self.begins.get_mut(&call).and_then(Vec::pop);
                if self.begins.get(&call).is_some_and(Vec::is_empty) {
                    self.begins.remove(&call);
                }
                match closed {
                    Some(value) => self.bytes -= key_bytes + size_of(&value),
                    // The `end` belongs to a call that was only counted, or to none.
                    None => self.omitted_calls = self.omitted_calls.saturating_sub(1),
                }
            }
            // These rows neither open nor close a call.
            RowEvent::Result
            | RowEvent::Model
            | RowEvent::Approve
            | RowEvent::Revoke
            | RowEvent::Start
            | RowEvent::Policy
            | RowEvent::Checkpoint
            | RowEvent::Stop
            | RowEvent::Other => {}
        }
    }

    /// Returns the values of the open calls, unordered, and the number of calls that were only counted.
    pub(super) fn into_open(self) -> (Vec<T>, u64) {
        (self.begins.into_values().flatten().collect(), self.omitted_calls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(event: RowEvent, call_id: &str) -> OpenCallFields<'_> {
        OpenCallFields { seq: 1, event, call_id: call_id.into(), tool: "t".into(), process: "p".into() }
    }

    #[test]
    fn open_calls_beyond_the_bound_are_counted() {
        let mut calls = OpenCalls::new(10);
        let mut track = |event, id| calls.track(&fields(event, id), || id.to_owned(), String::len);
        for id in ["a", "b", "a", "c", "d"] {
            track(RowEvent::Begin, id);
        }
        track(RowEvent::End, "a");
        track(RowEvent::End, "d");
        let (mut open, omitted) = calls.into_open();
        open.sort();
        assert_eq!((open, omitted), (vec!["a".to_owned(), "b".to_owned()], 1));
    }
}
