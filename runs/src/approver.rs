//! [`StoredApprover`]: asks through the store, so that another process can answer.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;
use portcullis_store::{
    ApprovalDecision, ApprovalStatus, Json, NewApprovalRequest, RunStore, StoreError, StoredAnswer,
    StoredApproval,
};
use portcullis_tools::approval::{
    ApprovalAnswer, ApprovalRequest, Approver, ApproverKind, AttributedAnswer, question,
};
use sha2::{Digest as _, Sha256};

use crate::{
    DrivenRun,
    clock::{milliseconds, now},
    store_changes::StoreChanges,
};

/// The lifetime of a stored question without a local approver: 24 hours.
pub const APPROVAL_TTL: Duration = Duration::from_secs(24 * 60 * 60);

/// How long the call outlasts the validity of its question. The store therefore reports the expiry before the
/// call's own timeout.
const MARGIN: Duration = Duration::from_secs(60);

/// The width of a stored question. A narrower terminal wraps it.
const COLUMNS: usize = 100;

/// The number of bytes of a hash in a question's id.
const ID_BYTES: usize = 8;

/// The maximum number of requests about one call. A resumed run asks again after a request has expired.
const MAX_REQUESTS: u32 = 100;

/// An approver that asks by rows of the store. The first answer counts: from another process through the
/// store, or from this process's approver.
pub struct StoredApprover {
    run: Arc<DrivenRun>,
    mode: QuestionMode,
    lifetime: Duration,
    on_approval_request: Option<ApprovalRequestFn>,
}

/// Callback for each new request. Must not block.
pub type ApprovalRequestFn = Arc<dyn Fn(&NewApprovalRequest) + Send + Sync>;

/// The approvers that a question reaches.
enum QuestionMode {
    /// Another process through the store, and the approver of this process. The first answer counts.
    StoreAndLocal(Arc<dyn Approver>),
    /// Another process through the store.
    StoreOnly,
    /// Only answers that were given earlier count.
    PastAnswersOnly,
}

impl StoredApprover {
    /// Asks only in the store. A question expires after [`APPROVAL_TTL`].
    #[must_use]
    pub fn in_store(run: Arc<DrivenRun>) -> Self {
        Self { run, mode: QuestionMode::StoreOnly, lifetime: APPROVAL_TTL, on_approval_request: None }
    }

    /// Asks this process's approver too. The question expires with that approver's time limit.
    #[must_use]
    pub fn in_store_and_locally(run: Arc<DrivenRun>, local: Arc<dyn Approver>) -> Self {
        let lifetime = local.time_limit();
        Self { run, mode: QuestionMode::StoreAndLocal(local), lifetime, on_approval_request: None }
    }

    /// Accepts only answers that were given earlier, to a process that has died since. Refuses any other
    /// question immediately.
    #[must_use]
    pub fn past_answers_only(run: Arc<DrivenRun>) -> Self {
        Self { run, mode: QuestionMode::PastAnswersOnly, lifetime: Duration::ZERO, on_approval_request: None }
    }

    /// Calls `on_approval_request` for each new request after it was stored.
    #[must_use]
    pub fn on_approval_request(mut self, on_approval_request: ApprovalRequestFn) -> Self {
        self.on_approval_request = Some(on_approval_request);
        self
    }

    fn store(&self) -> &dyn RunStore {
        &**self.run.store()
    }

    /// Writes the question, unless the same question about the same call is already open or answered. Returns
    /// its id.
    async fn write(&self, request: &ApprovalRequest) -> Result<String, StoreError> {
        for number in 1..=MAX_REQUESTS {
            let id = approval_id(request, number);
            let new = NewApprovalRequest {
                id: id.clone(),
                call: request.call_id.clone(),
                tool: request.tool.clone(),
                question: question(request, COLUMNS),
                hash: request.binding.clone(),
                expires: Some(now() + milliseconds(self.lifetime)),
            };
            // The id is derived from the call and its access, so the same question has the same id.
            match self.store().add_approval(self.run.guard(), new.clone()).await {
                Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error),
                Ok(()) => {
                    if let Some(on_approval_request) = &self.on_approval_request {
                        on_approval_request(&new);
                    }
                    return Ok(id);
                }
            }
            // A resumed run asks again. The answer may have arrived in the meantime.
            let earlier = self.store().approval(&id).await?;
            if !has_expired(&earlier) {
                return Ok(id);
            }
        }
        let status = ApprovalStatus::Expired;
        Err(StoreError::ApprovalClosed { id: approval_id(request, MAX_REQUESTS), status })
    }

    /// Returns the answer that this question has already got, even if it was asked again after it had
    /// expired.
    async fn earlier_answer(&self, request: &ApprovalRequest) -> Option<AttributedAnswer> {
        for number in 1..=MAX_REQUESTS {
            // The numbers have no gaps, so the first missing request ends the search.
            let earlier = self.store().approval(&approval_id(request, number)).await.ok()?;
            if earlier.answer.is_some() {
                return attributed_answer(&earlier);
            }
        }
        None
    }

    /// Waits until the store has an answer.
    async fn wait(&self, id: &str) -> AttributedAnswer {
        let mut changes = StoreChanges::new(self.store(), id);
        loop {
            match self.store().approval(id).await {
                Ok(approval) => {
                    if let Some(answer) = attributed_answer(&approval) {
                        return answer;
                    }
                }
                // Keep waiting: the question stays in the store, so a later read may succeed.
                Err(error) => {
                    tracing::warn!(error = &error as &dyn std::error::Error, id, "cannot read an approval");
                }
            }
            changes.wait_for_possible_change().await;
        }
    }

    /// Writes an answer that was given at this process. If another process was faster, returns that answer.
    async fn record(&self, id: &str, request: &ApprovalRequest, given: AttributedAnswer) -> AttributedAnswer {
        let (decision, edited_arguments, reason) = match &given.answer {
            ApprovalAnswer::Deny { reason } => (ApprovalDecision::Deny, None, reason.clone()),
            // A standing approval lives only in this process, so store a plain one.
            ApprovalAnswer::Approve | ApprovalAnswer::ApproveAlways => {
                (ApprovalDecision::Approve, None, None)
            }
            // Text that is not JSON is dropped here, and the check of the arguments refuses it later.
            ApprovalAnswer::ApproveWith { arguments } => {
                (ApprovalDecision::Approve, Json::from_text(arguments.as_str()).ok(), None)
            }
            // No person has answered. The question stays open for other processes.
            ApprovalAnswer::TimedOut | ApprovalAnswer::Unavailable => return given,
        };
        let answer = StoredAnswer {
            decision,
            by: given.name.clone().unwrap_or_else(|| given.by.to_string()),
            via: given.by.to_string(),
            edited_arguments,
            reason,
            decided: now(),
        };
        match self.store().answer_approval(id, &request.binding, answer).await {
            Err(StoreError::ApprovalClosed { .. }) => match self.store().approval(id).await {
                Ok(approval) => attributed_answer(&approval).unwrap_or(given),
                Err(_) => given,
            },
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, id, "cannot store an answer");
                given
            }
            Ok(_) => given,
        }
    }
}

impl fmt::Debug for StoredApprover {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StoredApprover").field("run", self.run.id()).finish_non_exhaustive()
    }
}

#[async_trait]
impl Approver for StoredApprover {
    async fn decide(&self, request: &ApprovalRequest) -> AttributedAnswer {
        if let QuestionMode::PastAnswersOnly = self.mode {
            let unavailable = || AttributedAnswer::by(ApproverKind::Store, ApprovalAnswer::Unavailable);
            return self.earlier_answer(request).await.unwrap_or_else(unavailable);
        }
        let id = match self.write(request).await {
            Ok(id) => id,
            Err(error) => {
                tracing::warn!(error = &error as &dyn std::error::Error, "cannot store a question");
                return match &self.mode {
                    QuestionMode::StoreAndLocal(local) => local.decide(request).await,
                    QuestionMode::StoreOnly | QuestionMode::PastAnswersOnly => {
                        AttributedAnswer::by(ApproverKind::Store, ApprovalAnswer::Unavailable)
                    }
                };
            }
        };
        let QuestionMode::StoreAndLocal(local) = &self.mode else { return self.wait(&id).await };
        tokio::select! {
            // If both answers arrive, `record` returns the stored one.
            given = local.decide(request) => self.record(&id, request, given).await,
            given = self.wait(&id) => given,
        }
    }

    fn time_limit(&self) -> Duration {
        self.lifetime + MARGIN
    }
}

/// Returns the id of a request. It is the same for the same call, access and number in every process.
#[must_use]
pub fn approval_id(request: &ApprovalRequest, number: u32) -> String {
    let parts = format!("{}\0{}\0{}\0{number}", request.run_id, request.call_id, request.binding);
    let hash = Sha256::digest(parts);
    format!("approval_{}", hex::encode(hash.get(..ID_BYTES).unwrap_or(&hash)))
}

fn has_expired(approval: &StoredApproval) -> bool {
    let is_past = approval.request.expires.is_some_and(|expires| expires <= now());
    match approval.status {
        ApprovalStatus::Waiting => is_past,
        ApprovalStatus::Expired => true,
        ApprovalStatus::Approved | ApprovalStatus::Denied => false,
    }
}

/// Returns the answer to a question, or a timeout if the question has expired.
fn attributed_answer(approval: &StoredApproval) -> Option<AttributedAnswer> {
    let Some(stored) = &approval.answer else {
        return has_expired(approval)
            .then(|| AttributedAnswer::by(ApproverKind::Store, ApprovalAnswer::TimedOut));
    };
    let answer = match (stored.decision, &stored.edited_arguments) {
        (ApprovalDecision::Approve, None) => ApprovalAnswer::Approve,
        (ApprovalDecision::Approve, Some(arguments)) => {
            ApprovalAnswer::ApproveWith { arguments: arguments.as_str().to_owned() }
        }
        (ApprovalDecision::Deny, _) => ApprovalAnswer::Deny { reason: stored.reason.clone() },
    };
    Some(AttributedAnswer { answer, by: ApproverKind::Store, name: Some(stored.by.clone()) })
}
