//! Steps and messages of a run, and the transaction that writes both.

use super::{FinishedCall, LeaseGuard, RunStatus};
use crate::json::Json;

/// A step that has ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StepRecord {
    /// The kind of step, for example `call_model`.
    pub kind: String,
    /// When it began.
    pub started_at: i64,
    /// When it ended.
    pub finished: i64,
    /// How it ended, in a few words for a listing.
    pub summary: String,
}

/// A stored step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The step's position in the run, from 1.
    pub ordinal: i64,
    /// The description of the step, as it was committed.
    pub record: StepRecord,
}

/// A stored message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredMessage {
    /// The message's position in the run, from 1.
    pub ordinal: i64,
    /// The message, in the caller's form.
    pub body: Json,
}

/// All changes of one step of a run. A store writes them in one transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CommitStep {
    /// The run and its lease.
    pub guard: LeaseGuard,
    /// The version that the step began with.
    pub version: i64,
    /// The state after the step.
    pub state: Json,
    /// The status of the run after the step. The lease ends when the run ends.
    pub status: RunStatus,
    /// All flow labels after the step.
    pub labels: Vec<String>,
    /// The messages that the step adds.
    pub messages: Vec<Json>,
    /// Calls of the step that were not written before. A call that is stored as begun gets one more attempt.
    pub finished_calls: Vec<FinishedCall>,
    /// The description of the step, for a listing.
    pub step: StepRecord,
    /// The inbox that the step has read, and the ordinal of the last entry that it consumes. All entries
    /// before it are consumed too.
    pub consumed_inbox: Option<(String, i64)>,
}
