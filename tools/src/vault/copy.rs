//! One copy: the read step and the write step at the same time, and the order in which they may end.
//!
//! The write step gives the destination its new content when it learns that all bytes were sent. It learns that
//! only after the read step has ended well and its row is on record. Whatever goes wrong before, on either side
//! or with the caller, breaks the transfer off, and then the write step removes what it has written.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use portcullis_types::{CancellationToken, GuestPath, ProgressFn, ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::tool::{DESTINATION, SOURCE};
use crate::{
    audit::Text,
    call::{Caller, Step, new_call},
    pipeline::{overdue, with_commas},
    registry::ToolRegistry,
    sandbox::{Transfer, TransferEnd},
    slots::CallSlot,
};

/// The steps' names.
const READ_STEP: &str = "vault_copyto_read";
const WRITE_STEP: &str = "vault_copyto_write";

/// What a write step may take to remove what it has written, when a copy is broken off, before it is killed. A
/// copy is broken off so long before its deadline, or when three quarters of its time are over.
const TIDY_TIME: Duration = Duration::from_secs(1);

/// What the call may take that removes the temporary file of a write step that was killed.
const CLEAN_UP_TIME: Duration = Duration::from_secs(1);

/// What a copy has of the call that it is.
pub(crate) struct Terms {
    /// What joins the rows of the call and its steps.
    pub(crate) operation_id: Option<Text>,
    pub(crate) time_limit: Duration,
    pub(crate) deadline: Instant,
    /// The steps run in the slot of the call.
    pub(crate) slot: CallSlot,
    /// Takes what the steps report.
    pub(crate) on_progress: Option<ProgressFn>,
}

/// A copy that is to be made.
pub(super) struct Copy {
    /// The steps, and nothing else.
    pub(super) steps: Arc<ToolRegistry>,
    pub(super) call_id: String,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) terms: Terms,
    pub(super) caller: Caller,
}

/// Why a copy is broken off from outside.
#[derive(Debug, Clone, Copy)]
enum Stop {
    Cancelled,
    Deadline,
}

impl Copy {
    /// Makes the copy.
    ///
    /// # Cancellation
    /// Dropping the future breaks the copy off; the steps still end in order.
    pub(super) async fn run(self) -> Result<ToolOutput, ToolError> {
        let given_up = self.caller.cancel.child_token();
        let _gone = given_up.clone().drop_guard();
        crate::spawn::to_its_end(self.work(given_up)).await?
    }

    /// Boxed, since the steps' calls are futures like the one that this is a part of.
    fn work(self, given_up: CancellationToken) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.make(&given_up).await })
    }

    async fn make(&self, given_up: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let temporary = format!("{:016x}", rand::random::<u64>());
        let transfer = Transfer::new();
        let mut reader = self.caller_of_step(Some(TransferEnd::Sending(Arc::clone(&transfer))));
        reader.on_progress.clone_from(&self.terms.on_progress);
        let writer = self.caller_of_step(Some(TransferEnd::Receiving(Arc::clone(&transfer))));
        let reading = async {
            let arguments = json!({ SOURCE: self.source });
            let read = self.call(READ_STEP, &arguments, &reader).await;
            match &read {
                Ok(_) => transfer.end(),
                Err(_) => drop(transfer.break_off()),
            }
            read
        };
        let writing = async {
            let arguments = json!({ DESTINATION: self.destination, "temporary": temporary });
            let written = self.call(WRITE_STEP, &arguments, &writer).await;
            // Nobody receives any more.
            transfer.break_off();
            reader.cancel.cancel();
            written
        };
        // The write step first: its row is there before anything is read.
        let both = async { tokio::join!(writing, reading) };
        tokio::pin!(both);
        let mut stopped = None;
        let (written, read) = tokio::select! {
            biased;
            ended = &mut both => ended,
            stop = self.stop(given_up) => {
                stopped = Some(stop);
                // A write step that knows already that it has everything is not held up.
                transfer.break_off();
                reader.cancel.cancel();
                match tokio::time::timeout(TIDY_TIME, &mut both).await {
                    Ok(ended) => ended,
                    Err(_elapsed) => {
                        writer.cancel.cancel();
                        both.await
                    }
                }
            }
        };
        let Err(error) = written else { return Ok(self.output(transfer.bytes())) };
        if transfer.is_received() && !is_steps_own_word(&error) {
            self.clean_up(&temporary).await;
        }
        Err(match (stopped, read) {
            (Some(Stop::Cancelled), _) => ToolError::cancelled("the call was cancelled"),
            (Some(Stop::Deadline), _) => overdue(self.terms.time_limit),
            // One that was stopped because the other failed is not the reason.
            (None, Err(read)) if read.kind() != ToolErrorKind::Cancelled => read,
            (None, _) => error,
        })
    }

    /// Waits until the copy must end: its caller has given up, or its time is over but for what tidying takes.
    async fn stop(&self, given_up: &CancellationToken) -> Stop {
        let last = self.terms.deadline - TIDY_TIME.min(self.terms.time_limit / 4);
        tokio::select! {
            biased;
            () = given_up.cancelled() => Stop::Cancelled,
            () = tokio::time::sleep_until(last.into()) => Stop::Deadline,
        }
    }

    /// One call of a step, through the whole pipeline.
    async fn call(&self, step: &str, arguments: &Value, caller: &Caller) -> Result<ToolOutput, ToolError> {
        let call = new_call(step, arguments.to_string());
        // On the heap: the call that this is a part of would be twice as large otherwise.
        Box::pin(self.steps.execute_with_policy(call, caller)).await.outcome
    }

    /// Whoever makes the operation makes its steps, in the same slot and until the same deadline. A step is
    /// stopped by the operation alone, which knows what must be put in order first.
    fn caller_of_step(&self, transfer: Option<TransferEnd>) -> Caller {
        Caller {
            operation_id: self.terms.operation_id.as_deref().map(str::to_owned),
            cancel: CancellationToken::new(),
            turn_deadline: Some(self.terms.deadline),
            approval_policy: None,
            approver: None,
            on_update: None,
            on_progress: None,
            on_event: None,
            slot: Some(self.terms.slot.clone()),
            step: Some(Step { transfer }),
            ..self.caller.clone()
        }
    }

    /// Has the temporary file removed that a write step left when it was killed.
    async fn clean_up(&self, temporary: &str) {
        let mut caller = self.caller_of_step(None);
        caller.turn_deadline = Some(Instant::now() + CLEAN_UP_TIME);
        let arguments =
            json!({ DESTINATION: self.destination, "temporary": temporary, "action": "clean_up" });
        if let Err(error) = self.call(WRITE_STEP, &arguments, &caller).await {
            tracing::warn!(
                call_id = self.call_id,
                error = &error as &dyn std::error::Error,
                "a temporary file of a copy may be left beside its destination"
            );
        }
    }

    fn output(&self, bytes: u64) -> ToolOutput {
        let shown = |path: &str| GuestPath::parse(path).map_or_else(|_| path.to_owned(), Into::into);
        let count = with_commas(usize::try_from(bytes).unwrap_or(usize::MAX));
        let (source, destination) = (shown(&self.source), shown(&self.destination));
        ToolOutput::text(format!("copied {count} bytes from {source} to {destination}"))
            .with_details(json!({ "bytes": bytes }))
    }
}

/// Whether a step ended by itself and says why, so that it has put its things in order.
fn is_steps_own_word(error: &ToolError) -> bool {
    match error.kind() {
        ToolErrorKind::Denied | ToolErrorKind::InvalidArguments | ToolErrorKind::NotFound => true,
        ToolErrorKind::Failed | ToolErrorKind::Unavailable => error.code() == error.kind().as_str(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sandbox::GuestFault;

    #[test]
    fn a_step_that_was_killed_or_crashed_has_not_put_its_things_in_order() {
        let own = [
            ToolError::failed("cannot write"),
            ToolError::not_found("no such file"),
            ToolError::denied("not allowed"),
            ToolError::denied("protected").with_code("protected_path"),
        ];
        assert!(own.iter().all(is_steps_own_word));
        let limit = Duration::from_secs(1);
        for fault in [
            GuestFault::Timeout { limit },
            GuestFault::Cancelled,
            GuestFault::MemoryLimit { limit_bytes: 1 },
            GuestFault::NoFinalFrame,
            GuestFault::Trap { reason: "unreachable".into() },
        ] {
            assert!(!is_steps_own_word(&(&fault).into()), "{fault}");
        }
        assert!(!is_steps_own_word(&ToolError::unavailable("gone").with_code("audit_unwritable")));
    }
}
