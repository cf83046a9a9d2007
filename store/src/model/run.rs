//! Runs and their leases.

use super::{InboxSpan, status::statuses};
use crate::json::Json;

statuses! {
    /// The status of a run.
    RunStatus {
        /// It has a next step that can be taken.
        Running = "running",
        /// It waits for the result of a call or for an approval.
        Waiting = "waiting",
        /// It has ended with an answer.
        Completed = "completed",
        /// It has ended without an answer.
        Failed = "failed",
        /// It has ended because it was cancelled.
        Cancelled = "cancelled",
    }
}

impl RunStatus {
    /// Returns whether the run has ended.
    #[must_use]
    pub fn has_ended(self) -> bool {
        matches!(self, Self::Completed | Self::Failed | Self::Cancelled)
    }
}

/// A run that begins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewRun {
    /// The id, unique in the store.
    pub id: String,
    /// The agent that it belongs to.
    pub agent: String,
    /// The subject of the run, for example the folder of a workspace. It can be any text, even an empty one.
    pub workspace: String,
    /// The caller's current time.
    pub created: i64,
    /// Its state before the first step.
    pub state: Json,
    /// The flow labels that hold from the beginning.
    pub labels: Vec<String>,
    /// The messages before the first step.
    pub messages: Vec<Json>,
    /// The lease of the process that begins the run: its owner, and when it expires. `None` for a run that another
    /// process will begin.
    pub lease: Option<(String, i64)>,
    /// The entries of an inbox that the run begins with. They are consumed in the transaction that creates
    /// the run, so of two runs that begin with the same entry, one is refused.
    pub consumed_inbox: Option<InboxSpan>,
}

/// A run as a listing shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSummary {
    /// The id, unique in the store.
    pub id: String,
    /// The agent that it belongs to.
    pub agent: String,
    /// The subject that it works on.
    pub workspace: String,
    /// The time of creation.
    pub created: i64,
    /// When a step was last committed.
    pub updated: i64,
    /// The current status.
    pub status: RunStatus,
    /// The version: 1 at first, and one more after each committed step.
    pub version: i64,
    /// The number of its messages, which is the ordinal of the last.
    pub messages: i64,
    /// The number of its steps, which is the ordinal of the last.
    pub steps: i64,
    /// The flow labels of what the run has read, sorted.
    pub labels: Vec<String>,
    /// The last lease: its owner, and when it expires or has expired. `None` if it was released.
    pub lease: Option<(String, i64)>,
    /// When cancellation was requested. The process that drives the run reads this.
    pub cancel_requested_at: Option<i64>,
}

/// A run with its state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Run {
    /// All but the state.
    pub summary: RunSummary,
    /// The state after the last step.
    pub state: Json,
}

/// The runs that a listing shows. The default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RunFilter {
    /// Only runs of this agent.
    pub agent: Option<String>,
    /// Only runs of this workspace.
    pub workspace: Option<String>,
    /// Only runs with this status.
    pub status: Option<RunStatus>,
    /// Only runs that have not ended (true), or only those that have (false).
    pub is_open: Option<bool>,
    /// Only runs that have not ended and that no process drives at this time: those to resume.
    pub resumable_at: Option<i64>,
}

/// Proves at each write that the caller drives the run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseGuard {
    /// The run that is driven.
    pub run: String,
    /// The owner of the lease, unique for each process.
    pub owner: String,
    /// The caller's current time. A lease that has expired is lost, even if no other process has taken it: the owner
    /// must acquire it again.
    pub now: i64,
}

/// A lease that was acquired or renewed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunLease {
    /// The run that the owner drives.
    pub run: String,
    /// The owner, unique for each process.
    pub owner: String,
    /// When it expires.
    pub until: i64,
    /// The version of the run, for the next [`CommitStep`](super::CommitStep).
    pub version: i64,
    /// When cancellation was requested.
    pub cancel_requested_at: Option<i64>,
}
