//! Inboxes of agents.

use crate::json::Json;

/// The kind of the entry that carries a late result. Its body is `{"callId", "runId", "toolName", "result"}`.
pub const TOOL_RESULT: &str = "tool_result";

/// An entry that is sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewInboxEntry {
    /// The agent that gets it.
    pub agent: String,
    /// The kind of the entry.
    pub kind: String,
    /// The entry, in the form of its kind.
    pub body: Json,
    /// The caller's current time.
    pub created: i64,
}

/// A stored entry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxEntry {
    /// The entry's position in the agent's inbox, from 1, without gaps.
    pub ordinal: i64,
    /// The kind of the entry.
    pub kind: String,
    /// The entry, in the form of its kind.
    pub body: Json,
    /// When it was sent.
    pub created: i64,
    /// When a step consumed it.
    pub consumed: Option<i64>,
}

/// The unconsumed entries of an inbox that a run begins with, from the first ordinal to the last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InboxSpan {
    /// The agent whose inbox it is.
    pub agent: String,
    /// The ordinal of the first entry.
    pub first: i64,
    /// The ordinal of the last entry.
    pub last: i64,
}
