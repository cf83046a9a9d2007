//! Approvals: which calls a caller wants asked about, the approver that is asked, and the binding of an
//! answer.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_egress::Url;
use portcullis_policy::{DenialCode, Grant, RequestedSubject, ToolFacts, UrlHost};
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

/// A caller's approval policy for a call, beside the policy file; the stricter of both holds.
pub trait ApprovalPolicy: Send + Sync {
    /// Decides on one call whose arguments are valid. Called once per call, on an executor thread.
    fn decide(&self, tool: &ToolFacts, arguments: &Value) -> ApprovalRule;
}

/// The answer of an [`ApprovalPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalRule {
    /// Adds nothing to the policy file.
    Allow,
    /// An approver is asked.
    Ask,
    /// The call is refused.
    Deny {
        /// Why, for the model.
        reason: String,
    },
}

/// An approver of calls: a person at a terminal, a client, a program.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Answers one request. Called once per request, after policy and paths are checked and before the call
    /// has any effect. A panic, or no answer within [`APPROVAL_TIMEOUT`], counts as no.
    ///
    /// # Cancellation
    /// Dropped when the call is cancelled.
    async fn decide(&self, request: &ApprovalRequest) -> ApprovalAnswer;
}

/// The question to an approver.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call's id.
    pub call_id: String,
    /// The agent that makes it.
    pub agent_id: String,
    /// The id of the caller's run.
    pub run_id: String,
    /// The tool's name.
    pub tool: String,
    /// The tool's tier.
    pub tier: SafetyTier,
    /// Whether the tool runs outside the sandbox.
    pub unconfined: bool,
    /// The arguments' JSON text, in full. It may hold anything: show it with
    /// [`escape_for_display`](portcullis_types::escape_for_display).
    pub arguments: String,
    /// The grant of the call.
    pub grant: Grant,
    /// The grant of each step, if the call is an operation. The operation's own grant is then empty.
    pub steps: Vec<StepGrant>,
    /// The digest of the policy in force, module hashes included. An approval kept for further calls holds
    /// under this digest only.
    pub policy_digest: String,
    /// The hash that an approval is bound to: SHA-256 over tool, arguments, grants and policy digest.
    pub binding: String,
}

/// The grant of one step of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepGrant {
    /// The step's name, as in the policy.
    pub step: String,
    /// Its grant. No other step holds it at the same time.
    pub grant: Grant,
}

/// The answer of an approver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// Yes, to exactly this request.
    Approve,
    /// Yes, with other arguments. The call is checked again with them, and the approver is asked again if the
    /// policy asks.
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

/// Approves every request: for an operator who has read the call, as with `portcullis call --approve`.
#[derive(Debug, Clone, Copy)]
pub struct ApproveAll;

#[async_trait]
impl Approver for ApproveAll {
    async fn decide(&self, _request: &ApprovalRequest) -> ApprovalAnswer {
        ApprovalAnswer::Approve
    }
}

/// A missing approval, though an approver was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotApproved {
    pub(crate) code: DenialCode,
    pub(crate) reason: Option<String>,
}

/// Asks the approver. Anything but a clear yes is a refusal.
pub(crate) async fn ask(
    approver: Option<&Arc<dyn Approver>>,
    request: &ApprovalRequest,
) -> Result<Option<String>, NotApproved> {
    let no = |code, reason| Err(NotApproved { code, reason });
    let Some(approver) = approver else { return no(DenialCode::ApprovalUnavailable, None) };
    let (approver, request) = (Arc::clone(approver), request.clone());
    let answering = spawn::spawn_task(async move { approver.decide(&request).await });
    match tokio::time::timeout(APPROVAL_TIMEOUT, answering).await {
        Err(_elapsed) => no(DenialCode::ApprovalTimedOut, None),
        // The approver panicked.
        Ok(None) => no(DenialCode::ApprovalUnavailable, None),
        Ok(Some(ApprovalAnswer::Approve)) => Ok(None),
        Ok(Some(ApprovalAnswer::ApproveWith { arguments })) => Ok(Some(arguments)),
        Ok(Some(ApprovalAnswer::Deny { reason })) => no(DenialCode::ApprovalRefused, reason),
    }
}

/// The hash that an approval is bound to.
///
/// # Errors
/// `internal` if the grant cannot be written as JSON: then no approver can be asked about it.
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

/// The origin of an address in one form for all spellings, with international names as Punycode. `None` for
/// other subjects.
fn origin(subject: &RequestedSubject) -> Option<String> {
    let RequestedSubject::Url { url: text, .. } = subject else { return None };
    let parse = || {
        let url = Url::parse(text).ok()?;
        let host = UrlHost::parse(url.host_str()?).ok()?;
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        Some(format!("{}://{host}{port}", url.scheme()))
    };
    // The policy refuses an address that cannot be parsed. Here its text stands for it.
    Some(parse().unwrap_or_else(|| text.clone()))
}
