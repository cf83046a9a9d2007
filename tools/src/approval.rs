//! Approvals: the caller's approval policy, the approver, and the binding of an answer to one request.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_egress::Url;
use portcullis_policy::{DenialCode, Grant, RequestedSubject, ToolDescriptor, UrlHost};
use portcullis_types::{SafetyTier, ToolError, error_chain};
use serde::Serialize;
use serde_json::Value;

pub use crate::audit::ApproverKind;
use crate::{audit::Confinement, digest, spawn};

mod question;
mod session;
mod standing;

pub use question::question;
pub use session::SessionApprovals;
pub(crate) use standing::StandingApprovals;
pub use standing::{RuleWriteError, RuleWriter, StandingOffer};

/// How long a call waits for an approver's answer before it is refused: 5 minutes.
pub const APPROVAL_TIMEOUT: Duration = Duration::from_secs(5 * 60);

/// A caller's approval policy. It applies on top of the policy file, and the stricter decision wins.
pub trait ApprovalPolicy: Send + Sync {
    /// Decides on one call, whose arguments have already been validated. Called once per call, on an executor
    /// thread.
    fn decide(&self, tool: &ToolDescriptor, arguments: &Value) -> ApprovalRule;
}

/// The answer of an [`ApprovalPolicy`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalRule {
    /// Adds no restriction to the policy file.
    Allow,
    /// An approver must approve the call.
    Ask,
    /// The call is refused.
    Deny {
        /// The reason, for the model.
        reason: String,
    },
}

/// An approver of calls: a person at a terminal, a client, a program.
#[async_trait]
pub trait Approver: Send + Sync {
    /// Answers one request. Called once per request, after the policy and path checks and before the call has
    /// any effect. A panic, or no answer within [`Approver::time_limit`], counts as a refusal.
    ///
    /// # Cancellation
    /// The future is dropped when the call is cancelled.
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer;

    /// How long to wait for an answer. Default: [`APPROVAL_TIMEOUT`].
    fn time_limit(&self) -> Duration {
        APPROVAL_TIMEOUT
    }
}

/// An answer and its author. An [`ApprovalAnswer`] converted into this type is attributed to the embedding
/// program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttributedAnswer {
    /// Whether the call is approved or refused.
    pub answer: ApprovalAnswer,
    /// The kind of approver.
    pub by: ApproverKind,
    /// The approver's name, if it gives one. The name is not verified.
    pub name: Option<String>,
}

impl AttributedAnswer {
    /// Returns an answer without a name.
    #[must_use]
    pub fn by(by: ApproverKind, answer: ApprovalAnswer) -> Self {
        Self { answer, by, name: None }
    }
}

impl From<ApprovalAnswer> for AttributedAnswer {
    fn from(answer: ApprovalAnswer) -> Self {
        Self::by(ApproverKind::Program, answer)
    }
}

/// The question to an approver.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct ApprovalRequest {
    /// The call's id.
    pub call_id: String,
    /// The id of the agent that makes the call.
    pub agent_id: String,
    /// The id of the caller's run.
    pub run_id: String,
    /// The tool's name.
    pub tool: String,
    /// The tool's tier.
    pub tier: SafetyTier,
    /// Whether the tool runs unconfined, outside the sandbox.
    pub unconfined: bool,
    /// The confinement of the tool, for the text of the question.
    #[serde(skip)]
    pub confinement: Confinement,
    /// The full JSON text of the arguments. The text is untrusted: show it with
    /// [`escape_for_display`](portcullis_types::escape_for_display).
    pub arguments: String,
    /// The grant of the call.
    pub grant: Grant,
    /// The grant of each step, if the call is an operation. The operation's own grant is then empty.
    pub steps: Vec<StepGrant>,
    /// The digest of the policy in force, including the module hashes. A cached approval is valid only while
    /// this digest stays the same.
    pub policy_digest: String,
    /// The rules that [`ApprovalAnswer::ApproveAlways`] would write. `None` if that answer is not offered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub standing: Option<StandingOffer>,
    /// The hash that an approval is bound to: SHA-256 over tool, arguments, grants and policy digest.
    pub binding: String,
}

/// The grant of one step of an operation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct StepGrant {
    /// The step's name, as in the policy.
    pub step: String,
    /// The step's grant. No other step holds it at the same time.
    pub grant: Grant,
}

/// The answer of an approver.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ApprovalAnswer {
    /// Yes, to exactly this request.
    Approve,
    /// Yes, and write the rules of [`ApprovalRequest::standing`] into the operator's policy, so that such a call needs
    /// no further approval. Without an offer, this answer means [`Self::Approve`].
    ApproveAlways,
    /// Yes, with other arguments. The call is checked again with the new arguments, and the approver is asked again if
    /// the policy requires it.
    ApproveWith {
        /// The JSON text of the arguments.
        arguments: String,
    },
    /// No.
    Deny {
        /// The reason, for the model.
        reason: Option<String>,
    },
    /// No one answered in time, for example because [`Approver::time_limit`] had passed.
    TimedOut,
    /// No one can be asked, for example because there is no approver.
    Unavailable,
}

/// Approves every request. For an operator who has already read the call, as with `portcullis call --approve`.
#[derive(Debug, Clone, Copy)]
pub struct ApproveAll;

#[async_trait]
impl Approver for ApproveAll {
    async fn decide(&self, _request: &ApprovalRequest) -> AttributedAnswer {
        AttributedAnswer::by(ApproverKind::Flag, ApprovalAnswer::Approve)
    }
}

/// Why a call is not approved: no approver is available, the answer came too late, or the approver refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NotApproved {
    pub(crate) code: DenialCode,
    pub(crate) reason: Option<String>,
}

/// The outcome of a question.
#[derive(Debug)]
pub(crate) struct AskResult {
    /// The new arguments, if the approver changed them.
    pub(crate) outcome: Result<Option<String>, NotApproved>,
    /// The author of the answer, if there was one.
    pub(crate) author: Option<(ApproverKind, Option<String>)>,
}

/// Asks the approver, unless a standing approval covers the request. Anything but a clear yes is a refusal.
pub(crate) async fn ask(
    approver: Option<&Arc<dyn Approver>>,
    mut request: ApprovalRequest,
    standing_approvals: Option<&Arc<StandingApprovals>>,
) -> AskResult {
    let unanswered = |code| AskResult { outcome: Err(NotApproved { code, reason: None }), author: None };
    if standing_approvals.is_some_and(|approvals| approvals.covers(&request)) {
        return AskResult { outcome: Ok(None), author: Some((ApproverKind::Session, None)) };
    }
    let Some(approver) = approver else { return unanswered(DenialCode::ApprovalUnavailable) };
    // Only for a request that reaches the approver, because looking up the offer reads the policy file.
    let offer = standing_approvals.and_then(|approvals| approvals.offer(&request));
    request.standing.clone_from(&offer);
    // The approver is foreign code. Run it in a separate task, so that a panic does not unwind into this one.
    let (approver, time_limit) = (Arc::clone(approver), approver.time_limit());
    let answering = spawn::spawn_task(async move { approver.decide(&request).await });
    let AttributedAnswer { answer, by, name } = match tokio::time::timeout(time_limit, answering).await {
        Err(_elapsed) => return unanswered(DenialCode::ApprovalTimedOut),
        // The approver panicked.
        Ok(None) => return unanswered(DenialCode::ApprovalUnavailable),
        Ok(Some(given)) => given,
    };
    let outcome = match answer {
        ApprovalAnswer::Approve => Ok(None),
        ApprovalAnswer::ApproveAlways => {
            if let (Some(approvals), Some(offer)) = (standing_approvals, offer) {
                keep(Arc::clone(approvals), offer).await;
            }
            Ok(None)
        }
        ApprovalAnswer::ApproveWith { arguments } => Ok(Some(arguments)),
        ApprovalAnswer::Deny { reason } => Err(NotApproved { code: DenialCode::ApprovalRefused, reason }),
        ApprovalAnswer::TimedOut => return unanswered(DenialCode::ApprovalTimedOut),
        ApprovalAnswer::Unavailable => return unanswered(DenialCode::ApprovalUnavailable),
    };
    AskResult { outcome, author: Some((by, name)) }
}

/// Writes the rules of a standing approval. If the write fails, the call still runs, because the approver approved it.
async fn keep(approvals: Arc<StandingApprovals>, offer: StandingOffer) {
    let file = offer.file.clone();
    let write_result = spawn::spawn_blocking(async move { approvals.keep(&offer) }).await;
    if let Ok(Err(error)) = write_result {
        let problem = error_chain(&error);
        tracing::warn!(%file, %problem, "the rule of an approval was not written");
    }
}

/// Computes the hash that an approval is bound to.
///
/// # Errors
/// `internal` if the grant cannot be serialized as JSON. The approver is then not asked.
pub(crate) fn approval_hash(
    tool: &str,
    arguments: &str,
    grant: &Grant,
    steps: &[StepGrant],
    policy_digest: &str,
) -> Result<String, ToolError> {
    let internal = |error: serde_json::Error| ToolError::internal(error.to_string());
    let grant = serde_json::to_string(grant).map_err(internal)?;
    let steps = serde_json::to_string(steps).map_err(internal)?;
    Ok(digest::hash_parts([tool, arguments, &grant, &steps, policy_digest]))
}

/// Returns the origin of a URL, normalized, with international names as Punycode. `None` for a subject that
/// is not a URL.
fn origin(subject: &RequestedSubject) -> Option<String> {
    let RequestedSubject::Url { url: text, .. } = subject else { return None };
    let parse = || {
        let url = Url::parse(text).ok()?;
        let host = UrlHost::parse(url.host_str()?).ok()?;
        let port = url.port().map_or_else(String::new, |port| format!(":{port}"));
        Some(format!("{}://{host}{port}", url.scheme()))
    };
    // The policy refuses a URL that cannot be parsed. Here such a URL counts as its own origin.
    Some(parse().unwrap_or_else(|| text.clone()))
}
