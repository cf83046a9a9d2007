//! Events, for readers that follow a topic.

use crate::json::Json;

/// An event that is appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    /// The topics that it belongs to, at least one, for example `space:s1`.
    pub topics: Vec<String>,
    /// The kind, in the caller's words, for example `message.created`.
    pub kind: String,
    /// The facts of the event, in the form of its kind.
    pub data: Json,
    /// The caller's current time.
    pub created: i64,
}

/// A stored event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id. Ids become visible in increasing order, so a reader that asks for ids after its last one
    /// misses none.
    pub id: i64,
    /// The topics that it was appended with, sorted.
    pub topics: Vec<String>,
    /// The kind that it was appended with.
    pub kind: String,
    /// The facts of the event, in the form of its kind.
    pub data: Json,
    /// When it was appended.
    pub created: i64,
}

/// The newest id of the event log, and the largest id that was removed from it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventBounds {
    /// The id of the newest event, even if it was removed; 0 before the first.
    pub newest: i64,
    /// The largest id that was removed for its age; 0 if none was.
    pub removed: i64,
}

impl EventBounds {
    /// Returns whether events after this id were removed, so that a reader that has read up to it cannot
    /// continue without a gap. Read the events before the bounds, so that a removal in between is noticed.
    #[must_use]
    pub fn has_gap_after(self, id: i64) -> bool {
        id < self.removed
    }
}
