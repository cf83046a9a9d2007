//! The backend of external tools. A store keeps the call until its result is submitted, and the run waits for
//! the result if the tool says so. A waiting call holds no slot.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use portcullis_types::{ToolError, ToolErrorCode, ToolEvent, ToolOutput, async_trait};
use serde_json::Value;

use super::{AttemptOutcome, Backend, CallAttempt, PendingResult};
use crate::{
    audit::Confinement,
    call::cancelled_error,
    external::{AddedCall, ExternalCall, ExternalCallState, ExternalCalls, external_call_id},
    pipeline::PendingRecord,
};

/// An external tool.
#[derive(Debug)]
pub(crate) struct ExternalBackend {
    /// Whether the run waits for the result.
    pub(crate) waits: bool,
    /// How long a call accepts a result.
    pub(crate) lifetime: Duration,
}

#[async_trait]
impl Backend for ExternalBackend {
    fn confinement(&self) -> Confinement {
        Confinement::External
    }

    fn may_resume(&self) -> bool {
        true
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, caller, labels, slot, time_limit, .. } = attempt;
        let Some(calls) = &caller.external_calls else {
            let message =
                "the results of this tool are submitted from outside, and this program keeps no calls for it";
            return Err(ToolError::unavailable(message).with_code(ToolErrorCode::NoExternalCalls));
        };
        // Label the run before the arguments leave and the result arrives.
        labels.mark_web_read();
        let call = ExternalCall {
            id: external_call_id(&caller.agent_id, &caller.run_id, &checked.call.id),
            agent: caller.agent_id.clone(),
            tool: checked.call.tool.clone(),
            arguments: checked.args.text().to_owned(),
            waits: self.waits,
            expires_at: expires_at(self.lifetime.max(time_limit)),
        };
        // The operation id joins the row of the call with the row of a late result.
        pending_record.row.operation_id = Some(call.id.as_str().into());
        let AddedCall { state, expires_at } = calls.add(&call).await?;
        let pending = PendingResult { id: call.id.clone(), expires_at };
        caller.emit(&ToolEvent::Pending {
            call_id: checked.call.id.clone(),
            id: call.id,
            expires: expires_at,
        });
        let waited = match state {
            ExternalCallState::Waiting => {
                // A nested call shares the slot of its parent, which must keep it.
                if caller.slot.is_none() {
                    slot.give_back();
                }
                wait(&**calls, &pending.id, &attempt).await
            }
            state => Ok(state),
        };
        Ok(match waited {
            Ok(ExternalCallState::Resolved(value)) => {
                AttemptOutcome::without_retry(Ok(submitted_output(value)))
            }
            // The run has stopped waiting for the call: in this process, or in an earlier one that died.
            Ok(ExternalCallState::Waiting | ExternalCallState::Pending) if self.waits => {
                let milliseconds = time_limit.as_millis();
                // Specification 003 defines this text, including the capital letter.
                let error = ToolError::timeout(format!("Tool timed out after {milliseconds}ms"));
                AttemptOutcome::without_retry(Err(error))
            }
            Ok(ExternalCallState::Waiting | ExternalCallState::Pending) => AttemptOutcome {
                pending: Some(pending),
                ..AttemptOutcome::without_retry(Ok(ToolOutput::default()))
            },
            Ok(ExternalCallState::Closed) => {
                let error = ToolError::timeout("the call was closed before a result was submitted");
                AttemptOutcome::without_retry(Err(error.with_code(ToolErrorCode::CallClosed)))
            }
            Err(error) => AttemptOutcome::without_retry(Err(error)),
        })
    }
}

/// Waits for a result until the deadline passes or the call is cancelled.
async fn wait(
    calls: &dyn ExternalCalls,
    id: &str,
    attempt: &CallAttempt<'_>,
) -> Result<ExternalCallState, ToolError> {
    // `biased`: check cancellation first, so that a cancelled call accepts no result.
    tokio::select! {
        biased;
        () = attempt.caller.cancel.cancelled() => {
            calls.cancel(id).await?;
            Err(cancelled_error())
        }
        state = calls.wait(id) => state,
        () = tokio::time::sleep_until(attempt.deadline.into()) => calls.stop_waiting(id).await,
    }
}

/// Converts a submitted result to an output.
pub(crate) fn submitted_output(value: Value) -> ToolOutput {
    match value {
        Value::String(text) => ToolOutput::text(text),
        value => ToolOutput::structured(value),
    }
}

/// Returns the time after this duration, in milliseconds since the Unix epoch.
fn expires_at(duration: Duration) -> i64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(now.saturating_add(duration).as_millis()).unwrap_or(i64::MAX)
}
