//! One copy: runs the read step and the write step concurrently, and orders their ends.
//!
//! The write step gives the destination its new content only when it learns that all bytes were sent. It
//! learns that after the read step has ended well and its row is recorded. Any earlier failure, of either
//! step or of the caller, breaks the transfer off; the write step then removes its temporary file.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use portcullis_types::{CancellationToken, GuestPath, ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::tool::{DESTINATION, SOURCE};
use crate::{
    call::{Caller, OperationContext, OperationStep, new_call},
    pipeline::{overdue, with_commas},
    registry::ToolRegistry,
    sandbox::{Transfer, TransferEnd},
};

/// The steps' names.
const READ_STEP: &str = "vault_copyto_read";
const WRITE_STEP: &str = "vault_copyto_write";

/// How long a write step may take to remove its temporary file after a break-off, before it is killed. A copy
/// is broken off this long before its deadline, or after three quarters of its time if that is later.
const TIDY_TIME: Duration = Duration::from_secs(1);

/// The time limit of the call that removes the temporary file of a killed write step.
const CLEAN_UP_TIME: Duration = Duration::from_secs(1);

/// A copy and its two steps.
pub(super) struct CopyRun {
    /// The registry of the steps.
    pub(super) steps: Arc<ToolRegistry>,
    pub(super) call_id: String,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) context: OperationContext,
    pub(super) caller: Caller,
}

/// The reason why a copy is stopped from outside.
#[derive(Debug, Clone, Copy)]
enum CopyStop {
    Cancelled,
    Deadline,
}

impl CopyRun {
    /// Makes the copy.
    ///
    /// # Cancellation
    /// Dropping the future breaks the copy off. The steps still clean up.
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
        reader.on_progress.clone_from(&self.context.on_progress);
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
            // There is no receiver any more: stop the read step.
            transfer.break_off();
            reader.cancel.cancel();
            written
        };
        // The write step first, so that its row exists before anything is read.
        let both = async { tokio::join!(writing, reading) };
        tokio::pin!(both);
        let mut stopped = None;
        // `biased`: a copy that has ended is not broken off.
        let (written, read) = tokio::select! {
            biased;
            ended = &mut both => ended,
            stop = self.stop(given_up) => {
                stopped = Some(stop);
                // `break_off` does not stop a write step that already has everything.
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
        if transfer.is_received() && !is_reported_by_guest(&error) {
            self.clean_up(&temporary).await;
        }
        Err(match (stopped, read) {
            (Some(CopyStop::Cancelled), _) => ToolError::cancelled("the call was cancelled"),
            (Some(CopyStop::Deadline), _) => overdue(self.context.time_limit),
            // A read step that was only stopped because the write failed is not the cause.
            (None, Err(read)) if read.kind() != ToolErrorKind::Cancelled => read,
            (None, _) => error,
        })
    }

    /// Waits until the copy must end: the caller has given up, or only the time to clean up is left.
    async fn stop(&self, given_up: &CancellationToken) -> CopyStop {
        let last = self.context.deadline - TIDY_TIME.min(self.context.time_limit / 4);
        tokio::select! {
            biased;
            () = given_up.cancelled() => CopyStop::Cancelled,
            () = tokio::time::sleep_until(last.into()) => CopyStop::Deadline,
        }
    }

    /// One call of a step, through the whole pipeline.
    async fn call(&self, step: &str, arguments: &Value, caller: &Caller) -> Result<ToolOutput, ToolError> {
        let call = new_call(step, arguments.to_string());
        // Boxed: otherwise the enclosing call's future would be twice as large.
        Box::pin(self.steps.execute_with_policy(call, caller)).await.outcome
    }

    /// The caller of a step: the operation's caller, with the same slot and deadline. Only the operation
    /// stops a step, because it knows what must be cleaned up first.
    fn caller_of_step(&self, transfer: Option<TransferEnd>) -> Caller {
        Caller {
            operation_id: self.context.operation_id.as_deref().map(str::to_owned),
            cancel: CancellationToken::new(),
            turn_deadline: Some(self.context.deadline),
            approval_policy: None,
            approver: None,
            on_update: None,
            on_progress: None,
            on_event: None,
            slot: Some(self.context.slot.clone()),
            operation_step: Some(OperationStep {
                is_approved: self.context.is_approved,
                transfer,
                ..OperationStep::default()
            }),
            ..self.caller.clone()
        }
    }

    /// Removes the temporary file that a killed write step left.
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

/// Whether the step itself reported the error, and so has cleaned up.
fn is_reported_by_guest(error: &ToolError) -> bool {
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
    fn a_killed_or_crashed_step_has_not_cleaned_up() {
        let own = [
            ToolError::failed("cannot write"),
            ToolError::not_found("no such file"),
            ToolError::denied("not allowed"),
            ToolError::denied("protected").with_code("protected_path"),
        ];
        assert!(own.iter().all(is_reported_by_guest));
        let limit = Duration::from_secs(1);
        for fault in [
            GuestFault::Timeout { limit },
            GuestFault::Cancelled,
            GuestFault::MemoryLimit { limit_bytes: 1 },
            GuestFault::NoFinalFrame,
            GuestFault::Trap { reason: "unreachable".into() },
        ] {
            assert!(!is_reported_by_guest(&(&fault).into()), "{fault}");
        }
        assert!(!is_reported_by_guest(&ToolError::unavailable("gone").with_code("audit_unwritable")));
    }
}
