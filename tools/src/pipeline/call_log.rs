//! The pending audit row of a call: its facts, gathered step by step.
//!
//! A record that is dropped before its end writes the end itself, so a caller that leaves does not lose the
//! row.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_types::{ToolError, ToolErrorKind};

use crate::audit::{AuditError, AuditLog, CallEnding, CallRecord, Outcome, Record};

/// The facts of one call, on their way into the audit log.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    log: Arc<AuditLog>,
    pub(crate) call: CallRecord,
    started: Instant,
    /// The time that the call waited for an approver. It does not count as the call's own time.
    waited: Duration,
    /// The start of the current wait.
    waits_since: Option<Instant>,
    is_over: bool,
}

impl PendingRecord {
    pub(crate) fn new(log: Arc<AuditLog>, call: CallRecord) -> Self {
        Self { log, call, started: Instant::now(), waited: Duration::ZERO, waits_since: None, is_over: false }
    }

    /// The duration of the call so far, without waits for an approver.
    pub(super) fn elapsed(&self) -> Duration {
        let waiting = self.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.started.elapsed().saturating_sub(self.waited + waiting)
    }

    /// Whether an approver has approved of the call, with other arguments or as it was.
    pub(super) fn is_approved(&self) -> bool {
        self.call.approval.as_deref().is_some_and(|approval| approval.starts_with("approved"))
    }

    /// Starts a wait for an approver.
    pub(super) fn begin_wait(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// Ends the wait, with an answer or without.
    pub(super) fn end_wait(&mut self) {
        self.waited += self.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Writes the `begin` row of a call that has effects.
    pub(super) fn begin(&self) -> Result<(), AuditError> {
        self.log.append(&Record::begin(&Arc::new(self.call.clone()))).map(drop)
    }

    /// Writes the final row.
    pub(super) fn end(&mut self, ending: CallEnding) -> Result<(), AuditError> {
        self.is_over = true;
        let row = Arc::new(std::mem::take(&mut self.call));
        self.log.append(&Record::end(&row, ending)).map(drop)
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut ending = CallEnding::new(Outcome::Error(ToolErrorKind::Cancelled));
        ending.code = Some("caller_gone".into());
        ending.duration = Some(self.elapsed());
        if let Err(error) = self.end(ending) {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot record an abandoned call");
        }
    }
}

/// The caller's error when a row cannot be written.
pub(super) fn unrecorded(error: &AuditError) -> ToolError {
    tracing::error!(error = error as &dyn std::error::Error, "the audit log cannot be written");
    ToolError::unavailable("the call cannot be recorded, so it is refused")
        .with_code("audit_unwritable")
        .with_operator_detail(error.to_string())
}
