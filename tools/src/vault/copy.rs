//! One copy: runs the read step and the write step concurrently, and orders how they complete.
//!
//! The write step moves the new content into place only when it learns that all bytes were sent. That happens
//! after the read step has succeeded and its row has been written. If a step fails or the caller cancels
//! before that, the transfer is aborted, and the write step removes its temporary file.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use portcullis_types::{CancellationToken, GuestPath, ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Value, json};

use super::tool::{DESTINATION, SOURCE};
use crate::{
    call::{Caller, OperationContext, OperationStep, cancelled_error, new_call},
    pipeline::{format_with_commas, time_limit_error},
    registry::ToolRegistry,
    sandbox::{Transfer, TransferEndpoint},
};

/// The names of the steps.
const READ_STEP: &str = "vault_copyto_read";
const WRITE_STEP: &str = "vault_copyto_write";

/// How long a write step may take to remove its temporary file after an aborted transfer before it is killed:
/// 1 s. The copy is aborted 1 s before its deadline, or later if 1 s is more than a quarter of its time.
const CLEAN_UP_GRACE: Duration = Duration::from_secs(1);

/// The timeout of the call that removes the temporary file of a killed write step.
const REMOVE_TIMEOUT: Duration = Duration::from_secs(1);

/// A copy with its two steps.
pub(super) struct CopyRun {
    /// The registry of the steps.
    pub(super) steps: Arc<ToolRegistry>,
    pub(super) call_id: String,
    pub(super) source: String,
    pub(super) destination: String,
    pub(super) context: OperationContext,
    pub(super) caller: Caller,
}

/// Why a copy is aborted from outside.
#[derive(Debug, Clone, Copy)]
enum CopyStop {
    Cancelled,
    Deadline,
}

impl CopyRun {
    /// Runs the copy.
    ///
    /// # Cancellation
    /// Dropping the future aborts the copy. The steps still clean up.
    pub(super) async fn run(self) -> Result<ToolOutput, ToolError> {
        let cancel = self.caller.cancel.child_token();
        // Cancels the copy when this future is dropped.
        let _ignored = cancel.clone().drop_guard();
        crate::spawn::run_to_completion(self.run_boxed(cancel)).await?
    }

    /// Boxed, because the future of a step's call has the same type as the future that contains this one.
    fn run_boxed(self, cancel: CancellationToken) -> BoxFuture<'static, Result<ToolOutput, ToolError>> {
        Box::pin(async move { self.copy(&cancel).await })
    }

    async fn copy(&self, cancel: &CancellationToken) -> Result<ToolOutput, ToolError> {
        let temporary = format!("{:016x}", rand::random::<u64>());
        let transfer = Transfer::new();
        let mut reader = self.caller_of_step(Some(TransferEndpoint::Sender(Arc::clone(&transfer))));
        reader.on_progress.clone_from(&self.context.on_progress);
        let writer = self.caller_of_step(Some(TransferEndpoint::Receiver(Arc::clone(&transfer))));
        let read_step = async {
            let arguments = json!({ SOURCE: self.source });
            let read_result = self.call(READ_STEP, &arguments, &reader).await;
            match &read_result {
                Ok(_) => transfer.complete(),
                // Without the end of the transfer, the write step discards its temporary file.
                Err(_) => drop(transfer.abort()),
            }
            read_result
        };
        let write_step = async {
            let arguments = json!({ DESTINATION: self.destination, "temporary": temporary });
            let result = self.call(WRITE_STEP, &arguments, &writer).await;
            // The receiving side is gone, so stop the read step.
            transfer.abort();
            reader.cancel.cancel();
            result
        };
        // The write step starts first, so that its row exists before anything is read.
        let both_steps = async { tokio::join!(write_step, read_step) };
        tokio::pin!(both_steps);
        let mut stop_cause = None;
        // `biased`: do not abort a copy that has just completed.
        let (write_result, read_result) = tokio::select! {
            biased;
            ended = &mut both_steps => ended,
            stop = self.wait_for_stop(cancel) => {
                stop_cause = Some(stop);
                // `abort` has no effect on a write step that already has all bytes.
                transfer.abort();
                reader.cancel.cancel();
                match tokio::time::timeout(CLEAN_UP_GRACE, &mut both_steps).await {
                    Ok(ended) => ended,
                    Err(_elapsed) => {
                        writer.cancel.cancel();
                        both_steps.await
                    }
                }
            }
        };
        let Err(error) = write_result else { return Ok(self.output(transfer.bytes())) };
        if transfer.is_received() && !is_reported_by_guest(&error) {
            self.clean_up(&temporary).await;
        }
        Err(match (stop_cause, read_result) {
            (Some(CopyStop::Cancelled), _) => cancelled_error(),
            (Some(CopyStop::Deadline), _) => time_limit_error(self.context.time_limit),
            // If the read step was cancelled, the failed write was the cause.
            (None, Err(read_error)) if read_error.kind() != ToolErrorKind::Cancelled => read_error,
            (None, _) => error,
        })
    }

    /// Waits until the copy must end: the caller has cancelled, or only the time for cleaning up is left.
    async fn wait_for_stop(&self, cancel: &CancellationToken) -> CopyStop {
        let stop_at = self.context.deadline - CLEAN_UP_GRACE.min(self.context.time_limit / 4);
        tokio::select! {
            // `biased`: report a cancellation as such, even at the deadline.
            biased;
            () = cancel.cancelled() => CopyStop::Cancelled,
            () = tokio::time::sleep_until(stop_at.into()) => CopyStop::Deadline,
        }
    }

    /// Calls a step through the whole pipeline.
    async fn call(&self, step: &str, arguments: &Value, caller: &Caller) -> Result<ToolOutput, ToolError> {
        let call = new_call(step, arguments.to_string());
        // Boxed, because otherwise the future of the enclosing call would be twice as large.
        Box::pin(self.steps.execute_with_policy(call, caller)).await.into_result()
    }

    /// Returns the caller of a step: the operation's caller, with the same slot and deadline. Only the
    /// operation cancels a step, because it knows what must be cleaned up first.
    fn caller_of_step(&self, transfer: Option<TransferEndpoint>) -> Caller {
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

    /// Removes the temporary file that a killed write step left behind.
    async fn clean_up(&self, temporary: &str) {
        let mut caller = self.caller_of_step(None);
        caller.turn_deadline = Some(Instant::now() + REMOVE_TIMEOUT);
        let arguments =
            json!({ DESTINATION: self.destination, "temporary": temporary, "action": "clean_up" });
        if let Err(error) = self.call(WRITE_STEP, &arguments, &caller).await {
            tracing::warn!(
                call_id = self.call_id,
                error = &error as &dyn std::error::Error,
                "a temporary file of a copy may remain beside its destination"
            );
        }
    }

    fn output(&self, bytes: u64) -> ToolOutput {
        let display_path = |path: &str| GuestPath::parse(path).map_or_else(|_| path.to_owned(), Into::into);
        let count = format_with_commas(usize::try_from(bytes).unwrap_or(usize::MAX));
        let (source, destination) = (display_path(&self.source), display_path(&self.destination));
        ToolOutput::text(format!("copied {count} bytes from {source} to {destination}"))
            .with_details(json!({ "bytes": bytes }))
    }
}

/// Whether the step itself reported the error, in which case it has already cleaned up.
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
        let guest_errors = [
            ToolError::failed("cannot write"),
            ToolError::not_found("no such file"),
            ToolError::denied("not allowed"),
            ToolError::denied("protected").with_code("protected_path"),
        ];
        assert!(guest_errors.iter().all(is_reported_by_guest));
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
