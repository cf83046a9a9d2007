//! What a call leaves behind: the facts for its audit row, gathered step by step.
//!
//! A record that is dropped before its end was recorded writes the end itself: a caller that goes away does
//! not take the row with it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_types::{ToolError, ToolErrorKind};

use crate::audit::{AuditError, AuditLog, CallRecord, Ending, Outcome, Record};

/// The facts of one call on their way into the audit log.
#[derive(Debug)]
pub(crate) struct PendingRecord {
    log: Arc<AuditLog>,
    pub(crate) row: CallRecord,
    started: Instant,
    /// How long others were waited for whose time is not the call's.
    waited: Duration,
    /// Since when such a wait goes on.
    waits_since: Option<Instant>,
    is_over: bool,
}

impl PendingRecord {
    pub(crate) fn new(log: Arc<AuditLog>, row: CallRecord) -> Self {
        Self { log, row, started: Instant::now(), waited: Duration::ZERO, waits_since: None, is_over: false }
    }

    /// How long the call has taken so far, without the time that an approver took for an answer.
    pub(super) fn elapsed(&self) -> Duration {
        let waiting = self.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        self.started.elapsed().saturating_sub(self.waited + waiting)
    }

    /// Somebody is asked, and takes the time that a person takes.
    pub(super) fn begin_wait(&mut self) {
        self.waits_since = Some(Instant::now());
    }

    /// The answer is there, or nobody waits for it any more.
    pub(super) fn end_wait(&mut self) {
        self.waited += self.waits_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Writes the row before a call that has effects.
    pub(super) fn begin(&self) -> Result<(), AuditError> {
        self.log.append(&Record::begin(&Arc::new(self.row.clone()))).map(drop)
    }

    /// Writes the last row.
    pub(super) fn end(&mut self, ending: Ending) -> Result<(), AuditError> {
        self.is_over = true;
        let row = Arc::new(std::mem::take(&mut self.row));
        self.log.append(&Record::end(&row, ending)).map(drop)
    }
}

impl Drop for PendingRecord {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let mut ending = Ending::new(Outcome::Error(ToolErrorKind::Cancelled));
        ending.code = Some("caller_gone".into());
        ending.duration = Some(self.elapsed());
        if let Err(error) = self.end(ending) {
            tracing::error!(error = &error as &dyn std::error::Error, "cannot record an abandoned call");
        }
    }
}

/// What a caller learns when a row cannot be written.
pub(super) fn unrecorded(error: &AuditError) -> ToolError {
    tracing::error!(error = error as &dyn std::error::Error, "the audit log cannot be written");
    ToolError::unavailable("the call cannot be recorded, so it is refused")
        .with_code("audit_unwritable")
        .with_operator_detail(error.to_string())
}
