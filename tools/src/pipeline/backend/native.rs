//! The backend of native tools. They run in this process, outside the sandbox. Each call has a thread of its
//! own.

use std::{
    fmt,
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use portcullis_types::{Tool, ToolArgs, ToolContext, ToolError, ToolErrorKind, ToolOutput, async_trait};

use super::{
    AttemptOutcome, Backend, CallAttempt,
    reports::{progress_forwarder, update_forwarder},
    time_limit_error,
};
use crate::{
    audit::Confinement,
    call::{Caller, NestingContext, cancelled_error},
    digest,
    pipeline::PendingRecord,
};

/// A tool of this process.
#[derive(Clone)]
pub(crate) struct NativeTool(pub(crate) Arc<dyn Tool>);

impl fmt::Debug for NativeTool {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NativeTool")
    }
}

#[async_trait]
impl Backend for NativeTool {
    fn confinement(&self) -> Confinement {
        Confinement::Native
    }

    fn is_unconfined(&self) -> bool {
        true
    }

    fn may_block(&self) -> bool {
        true
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let checked = attempt.checked;
        let has_called = Arc::new(AtomicBool::new(false));
        let ctx = context(attempt, Arc::clone(&has_called));
        let result = run(Arc::clone(&self.0), ctx, checked.args.clone(), attempt.time_limit).await;
        let harmless = checked.may_repeat(pending_record.row.tier);
        // A tool that made nested calls is not retried, because a retry would repeat their effects.
        let may_retry = harmless && !has_called.load(Ordering::Relaxed) && is_unavailable(&result);
        Ok(AttemptOutcome { may_retry, ..AttemptOutcome::without_retry(result) })
    }
}

/// Builds the tool's context for the call.
fn context(attempt: CallAttempt<'_>, has_called: Arc<AtomicBool>) -> ToolContext {
    let CallAttempt { checked, caller, deadline, slot, grant, host, .. } = attempt;
    let call = &checked.call;
    let mut ctx = ToolContext::detached(&call.tool);
    ctx.call_id.clone_from(&call.id);
    ctx.run_id.clone_from(&caller.run_id);
    ctx.agent_id.clone_from(&caller.agent_id);
    ctx.space_id.clone_from(&caller.space_id);
    ctx.idempotency_key = digest::hash_parts([&caller.agent_id, &caller.run_id, &call.id]);
    ctx.cancel = caller.cancel.child_token();
    ctx.deadline = Some(deadline);
    // Forward the reports of a native tool like the frames of a guest.
    ctx.on_update = update_forwarder(&call.id, caller, Some(grant.limits.max_output));
    ctx.on_progress = progress_forwarder(&call.id, caller);
    // Nested calls belong to the tool's own call, which has already started, so they get no start listener.
    let caller = Caller { slot: Some(slot.clone()), start_listener: None, ..caller.clone() };
    ctx.extensions = host.states.clone();
    ctx.extensions.insert(NestingContext { caller, has_called });
    ctx
}

fn is_unavailable(result: &Result<ToolOutput, ToolError>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ToolErrorKind::Unavailable)
}

/// Runs a native tool so that it cannot delay other calls. A panic of the tool is caught. A tool that blocks
/// its thread is abandoned at the deadline.
async fn run(
    tool: Arc<dyn Tool>,
    ctx: ToolContext,
    args: ToolArgs,
    time_limit: Duration,
) -> Result<ToolOutput, ToolError> {
    let cancel = ctx.cancel.clone();
    let deadline = ctx.deadline.unwrap_or_else(|| Instant::now() + time_limit);
    let cancel_token = cancel.clone();
    // Cancel the tool whenever this function returns, even if the caller drops the future.
    let _stop = cancel.clone().drop_guard();
    let call = async move {
        let tool_call = AssertUnwindSafe(tool.call(&ctx, &args)).catch_unwind();
        // `biased`: check cancellation and deadline first, so that a tool is never polled after its deadline.
        tokio::select! {
            biased;
            () = cancel_token.cancelled() => Err(cancelled_error()),
            () = tokio::time::sleep_until(deadline.into()) => Err(time_limit_error(time_limit)),
            result = tool_call => result.unwrap_or_else(|_panic| Err(ToolError::internal("the tool panicked"))),
        }
    };
    let thread = crate::spawn::spawn_blocking(call);
    // Check the limits outside the thread too, for a tool that blocks the thread.
    tokio::select! {
        result = thread => result?,
        () = cancel.cancelled() => Err(cancelled_error()),
        () = tokio::time::sleep_until(deadline.into()) => Err(time_limit_error(time_limit)),
    }
}
