//! Approvals: what a caller wants asked, who is asked, and what exactly an answer is bound to.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_policy::{DenialCode, Grant, ToolFacts};
use portcullis_types::{SafetyTier, ToolError};
use serde::Serialize;
use serde_json::Value;

use crate::{digest, spawn};

mod question;
mod session;

pub use question::question;
pub use session::SessionApprovals;

/// How long an approver may take before the answer counts as no: 5 minutes.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// What a caller wants done with a call, beside what the policy file says; the stricter of both holds.
pub trait ApprovalPolicy: Send + Sync {
    /// Decides on one call whose arguments are valid. Called once per call, on an executor thread.
    fn decide(&self, tool: &ToolFacts, arguments: &Value) -> ApprovalRule;
}

/// The answer of an [`ApprovalPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalRule {
    /// Nothing beyond the policy file.
    Allow,
    /// Somebody is asked.
    Ask,
    /// The call is refused.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

/// Somebody who can be asked: a person at a terminal, a client, a program.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Answers one request. Called once per request, after policy and paths are checked and before
    /// anything has happened. A panic, or no answer within [`APPROVAL_TIMEOUT`], is a no.
    ///
    /// # Cancellation
    /// Dropped when the call is cancelled.
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer;
}

/// What an approver is asked.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call.
    pub call_id: String,
    /// The agent that makes it.
    pub agent_id: String,
    /// Its run.
    pub run_id: String,
    /// The tool's name.
    pub tool: String,
    /// The tool's tier.
    pub tier: SafetyTier,
    /// Whether the tool runs outside the sandbox.
    pub unconfined: bool,
    /// The arguments' JSON text, in full. Show it with [`escape_for_display`](portcullis_types::escape_for_display): it
    /// may hold anything.
    pub arguments: String,
    /// What the call may touch.
    pub grant: Grant,
    /// What each step of the call may touch, where it is an operation that is made of steps: then its own grant
    /// holds nothing.
    pub steps: Vec<StepGrant>,
    /// The policy in force, by its digest, module hashes included: an approval that is kept for further calls holds
    /// under this one only.
    pub policy_digest: String,
    /// What an approval is bound to: SHA-256 over tool, arguments, grants and policy digest.
    pub binding: String,
}

/// What a step of an operation may touch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepGrant {
    /// The step's name, as in the policy.
    pub step: String,
    /// What it may touch. No other step holds it at the same time.
    pub grant: Grant,
}

/// What an approver answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// Yes, to exactly this.
    Approve,
    /// Yes, with other arguments; these are checked like new ones, and asked about again if need be.
    ApproveWith {
        /// The JSON text of the arguments.
        arguments: String,
    },
    /// No.
    Deny {
        /// Why, for the model.
        reason: Option<String>,
    },
}

/// Says yes to everything: for an operator who has read the call, as with `portcullis call --approve`.
#[derive(Debug, Clone, Copy)]
pub struct ApproveAll;

#[async_trait]
impl Approver for ApproveAll {
    async fn decide(&self, _request: &ApprovalRequest) -> ApprovalAnswer {
        ApprovalAnswer::Approve
    }
}

/// Why an approval was not given, though somebody was there to be asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotApproved {
    pub(crate) code: DenialCode,
    pub(crate) reason: Option<String>,
}

/// Asks, and makes a no of everything that is not a clear yes.
pub(crate) async fn ask(
    approver: Option<&Arc<dyn Approver>>,
    request: &ApprovalRequest,
) -> Result<Option<String>, NotApproved> {
    let no = |code, reason| Err(NotApproved { code, reason });
    let Some(approver) = approver else { return no(DenialCode::ApprovalUnavailable, None) };
    let (approver, request) = (Arc::clone(approver), request.clone());
    let asked = spawn::apart(async move { approver.decide(&request).await });
    match tokio::time::timeout(APPROVAL_TIMEOUT, asked).await {
        Err(_elapsed) => no(DenialCode::ApprovalTimedOut, None),
        // It panicked.
        Ok(None) => no(DenialCode::ApprovalUnavailable, None),
        Ok(Some(ApprovalAnswer::Approve)) => Ok(None),
        Ok(Some(ApprovalAnswer::ApproveWith { arguments })) => Ok(Some(arguments)),
        Ok(Some(ApprovalAnswer::Deny { reason })) => no(DenialCode::ApprovalRefused, reason),
    }
}

/// The hash that an approval is bound to.
///
/// # Errors
/// `internal` if the grant has no JSON text: then nobody can be asked about it.
pub(crate) fn binding(
    tool: &str,
    arguments: &str,
    grant: &Grant,
    steps: &[StepGrant],
    policy_digest: &str,
) -> Result<String, ToolError> {
    let internal = |error: serde_json::Error| ToolError::internal(error.to_string());
    let grant = serde_json::to_string(grant).map_err(internal)?;
    let steps = serde_json::to_string(steps).map_err(internal)?;
    Ok(digest::of_parts([tool, arguments, &grant, &steps, policy_digest]))
}
