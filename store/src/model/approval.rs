//! Questions to a person, and their answers.

use super::status::statuses;
use crate::json::Json;

statuses! {
    /// How far an approval is. It goes from waiting to one of the others, once.
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

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewApproval {
    /// Its id, unique in the store.
    pub id: String,
    /// The id of the call.
    pub call: String,
    /// The tool.
    pub tool: String,
    /// The question as a person reads it.
    pub question: String,
    /// The hash of what is asked about. A decision must name the same hash.
    pub hash: String,
    /// When the question expires. None for one that never does.
    pub expires: Option<i64>,
}

/// A question as it is stored, with its answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Approval {
    /// The question.
    pub asked: NewApproval,
    /// The run that asks.
    pub run: String,
    /// When it was asked.
    pub created: i64,
    /// How far it is.
    pub status: ApprovalStatus,
    /// The answer. None if it waits or has expired.
    pub decision: Option<Decision>,
}

/// The answer's direction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The call may run.
    Approve,
    /// The call may not run.
    Deny,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// The direction.
    pub verdict: Verdict,
    /// The person who decided.
    pub by: String,
    /// The way that the answer came, for example `terminal`.
    pub via: String,
    /// Arguments that the person has put in place of the call's.
    pub edited_arguments: Option<Json>,
    /// The reason, for the model.
    pub reason: Option<String>,
    /// When.
    pub decided: i64,
}

/// Which approvals a listing shows. The default shows all.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ApprovalFilter {
    /// Only those of this run.
    pub run: Option<String>,
    /// Only those with this status.
    pub status: Option<ApprovalStatus>,
}
