//! Questions to a person, and their answers.

use super::status::statuses;
use crate::json::Json;

statuses! {
    /// The status of a request for an approval. It changes from waiting to one of the others, once.
    ApprovalStatus {
        /// It has no answer yet.
        Waiting = "waiting",
        /// The call may run.
        Approved = "approved",
        /// The call may not run.
        Denied = "denied",
        /// No answer came in time.
        Expired = "expired",
    }
}

/// A request for an approval, before it is stored.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApprovalRequest {
    /// The id, unique in the store.
    pub id: String,
    /// The id of the call that waits for the answer.
    pub call: String,
    /// The tool that the call names.
    pub tool: String,
    /// The question as a person reads it.
    pub question: String,
    /// The hash of the content that the question is about. An answer must name the same hash.
    pub hash: String,
    /// When the request expires; `None` if it never does.
    pub expires: Option<i64>,
}

/// A stored request for an approval, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredApproval {
    /// The request, as the run has added it.
    pub request: NewApprovalRequest,
    /// The run that asks.
    pub run: String,
    /// The agent of the run.
    pub agent: String,
    /// When it was stored.
    pub created: i64,
    /// The status when it was read. See [`Self::status_at`].
    pub status: ApprovalStatus,
    /// The answer; `None` if the request waits or has expired.
    pub answer: Option<StoredAnswer>,
}

impl StoredApproval {
    /// Returns the status at this time. A waiting request whose expiry time has passed has expired, even
    /// before a sweep marks it.
    #[must_use]
    pub fn status_at(&self, now: i64) -> ApprovalStatus {
        let has_expired = self.request.expires.is_some_and(|expires| expires <= now);
        if self.status == ApprovalStatus::Waiting && has_expired {
            ApprovalStatus::Expired
        } else {
            self.status
        }
    }
}

/// The decision of an answer about the call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ApprovalDecision {
    /// The call may run.
    Approve,
    /// The call may not run.
    Deny,
}

/// A stored answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredAnswer {
    /// Whether the call may run.
    pub decision: ApprovalDecision,
    /// The person who decided.
    pub by: String,
    /// The channel that the answer came through, for example `terminal`.
    pub via: String,
    /// Arguments that replace the call's, if the person edited them.
    pub edited_arguments: Option<Json>,
    /// The reason, for the model.
    pub reason: Option<String>,
    /// When the person answered.
    pub decided: i64,
}

/// The approvals that a listing shows. The default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only those of this run.
    pub run: Option<String>,
    /// Only those with this status.
    pub status: Option<ApprovalStatus>,
}
