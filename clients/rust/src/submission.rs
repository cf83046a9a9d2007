//! [`Submission`]: the outcome of a submission.

use serde::{Deserialize, Serialize};

/// The outcome of a submission that the gateway has decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "a result that was not delivered did not reach the agent"]
#[non_exhaustive]
pub enum Submission {
    /// The result was accepted (200), now or with an earlier submission of the same result.
    Delivered(Delivery),
    /// The call already has a different result, which stays (409).
    AlreadyAnswered,
    /// The call has expired or was cancelled (410).
    Closed,
    /// There is no such call in this run, or the token may not see it (404).
    Unknown,
}

impl Submission {
    /// Returns whether the result was accepted.
    #[must_use]
    pub fn is_delivered(self) -> bool {
        matches!(self, Self::Delivered(_))
    }

    /// Returns the outcome that a refusal means. Returns `None` for any other refusal, and for a refusal
    /// that a gateway did not write: a proxy's 404 says nothing about the call.
    pub(crate) fn of_refusal(status: u16, code: &str) -> Option<Self> {
        match (status, code) {
            (404, "not_found") => Some(Self::Unknown),
            (409, "conflict") => Some(Self::AlreadyAnswered),
            (410, "gone") => Some(Self::Closed),
            _ => None,
        }
    }
}

/// How a result reaches the agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Delivery {
    /// The run waits for the result.
    Inline,
    /// The agent reads the result in a later cycle.
    Inbox,
}

/// The body of a submission.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SubmittedResult<'a, R: ?Sized> {
    pub(crate) call_id: &'a str,
    pub(crate) result: &'a R,
}

/// The response to an accepted result.
#[derive(Debug, Deserialize)]
pub(crate) struct AcceptedResult {
    pub(crate) delivery: Delivery,
}
