//! The unfinished audit row of a call. Each step of the pipeline adds fields to it.
//!
//! If a record is dropped before its end is written, `drop` writes it, so the row is not lost when
//! the caller goes away.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::DenialCode;
use portcullis_types::{ToolError, ToolErrorCode, ToolErrorKind};
use sha2::{Digest as _, Sha256};

use crate::{
    approval::{self, ApprovalRequest},
    audit::{ApproverKind, AuditError, AuditLog, CallEnd, NewRow, Outcome, RecordedApprover, RowFields},
    process_start,
};

/// The width of a stored question, in columns. The approver saw the same lines, wrapped at another width.
const KEPT_QUESTION_COLUMNS: usize = 100;

/// The row fields of one call, until they are written to the audit log.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    log: Arc<AuditLog>,
    pub(crate) row: RowFields,
    /// The outcome of the approval. The row has it as a string.
    approval: Option<ApprovalOutcome>,
    started_at: Instant,
    /// How long the call has waited for an approver. This does not count towards its duration.
    approval_wait: Duration,
    /// The start of the current wait.
    waits_since: Option<Instant>,
    /// The number of bytes forwarded so far, for a result that is streamed.
    pub(super) passed_bytes: Option<u64>,
    /// Whether the record describes a late result, not a call.
    pub(super) is_late: bool,
    is_over: bool,
}

/// The outcome of a call's approval.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApprovalOutcome {
    /// The call needed no approval.
    NotRequired,
    /// An approver, or a standing approval, approved the call.
    Approved,
    /// An approver approved the call with other arguments.
    ApprovedWithChanges,
    /// The call is not approved, with the code of the denial.
    NotApproved(DenialCode),
}

impl ApprovalOutcome {
    /// The outcome as the row shows it.
    fn as_str(self) -> &'static str {
        match self {
            Self::NotRequired => "not_required",
            Self::Approved => "approved",
            Self::ApprovedWithChanges => "approved_with_changes",
            Self::NotApproved(code) => code.as_str(),
        }
    }
}

impl PendingRecord {
    pub(crate) fn new(log: Arc<AuditLog>, call: RowFields) -> Self {
        Self {
            log,
            row: call,
            approval: None,
            started_at: Instant::now(),
            approval_wait: Duration::ZERO,
            waits_since: None,
            passed_bytes: None,
            is_late: false,
            is_over: false,
        }
    }

    /// The duration of the call so far, without the waits for an approver.
    pub(super) fn elapsed(&self) -> Duration {
        let waiting = self.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.started_at.elapsed().saturating_sub(self.approval_wait + waiting)
    }

    /// Whether an approver has approved the call, with or without changes to the arguments.
    pub(super) fn is_approved(&self) -> bool {
        matches!(self.approval, Some(ApprovalOutcome::Approved | ApprovalOutcome::ApprovedWithChanges))
    }

    /// Records the outcome of the approval. A later outcome replaces an earlier one.
    pub(super) fn record_approval(&mut self, outcome: ApprovalOutcome) {
        self.approval = Some(outcome);
        self.row.approval = Some(outcome.as_str().into());
    }

    /// Records who answered, and stores the question if a person saw it.
    ///
    /// # Errors
    /// `unavailable` if the question cannot be stored: the call is then refused, like a call without a row.
    pub(super) fn record_approver(
        &mut self,
        by: ApproverKind,
        name: Option<String>,
        rule: &str,
        request: &ApprovalRequest,
    ) -> Result<(), ToolError> {
        let question_sha256 = match by {
            ApproverKind::Terminal | ApproverKind::Elicitation | ApproverKind::Store => {
                let question = approval::question(request, KEPT_QUESTION_COLUMNS);
                let sha256 = hex::encode(Sha256::digest(&question));
                // Store the question before writing the row that contains its hash.
                self.log.store_question(&sha256, &question).map_err(|error| unrecorded(&error))?;
                Some(sha256.into())
            }
            // No question was shown: the answer was given in advance, or by a program, which gets
            // the facts instead.
            ApproverKind::Flag | ApproverKind::Session | ApproverKind::Program => None,
        };
        self.row.approver = Some(RecordedApprover {
            by,
            uid: Some(process_start::own_uid()),
            name: name.map(Into::into),
            question_sha256,
            rule: (!rule.is_empty()).then(|| rule.into()),
        });
        Ok(())
    }

    /// Records that the present arguments need no approval. An earlier outcome is kept, because an approver
    /// may have supplied these arguments.
    pub(super) fn record_no_approval_needed(&mut self) {
        if self.approval.is_none() {
            self.record_approval(ApprovalOutcome::NotRequired);
        }
    }

    /// Starts a wait for an approver.
    pub(super) fn begin_wait(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// Ends the wait, with or without an answer.
    pub(super) fn end_wait(&mut self) {
        self.approval_wait += self.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Writes the `begin` row.
    pub(super) fn begin(&self) -> Result<(), AuditError> {
        self.log.append(&NewRow::begin(&Arc::new(self.row.clone()))).map(drop)
    }

    /// Writes the final row.
    pub(super) fn end(&mut self, ending: CallEnd) -> Result<(), AuditError> {
        self.is_over = true;
        let descriptor = Arc::new(std::mem::take(&mut self.row));
        let row =
            if self.is_late { NewRow::result(&descriptor, ending) } else { NewRow::end(&descriptor, ending) };
        self.log.append(&row).map(drop)
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        // The call's future was dropped before it completed.
        let mut ending = CallEnd::new(Outcome::Error(ToolErrorKind::Cancelled));
        ending.code = Some(ToolErrorCode::CallerGone.as_str().into());
        ending.duration = Some(self.elapsed());
        ending.output_bytes = self.passed_bytes;
        if let Err(error) = self.end(ending) {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot record an abandoned call");
        }
    }
}

/// Returns the error of a call whose row cannot be written.
pub(super) fn unrecorded(error: &AuditError) -> ToolError {
    tracing::error!(error = error as &dyn std::error::Error, "the audit log cannot be written");
    ToolError::unavailable("the call cannot be recorded, so it is refused")
        .with_code(ToolErrorCode::AuditUnwritable)
        .with_operator_detail(error.to_string())
}
