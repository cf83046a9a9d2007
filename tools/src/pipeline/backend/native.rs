//! Backend of native tools. They run in this process, outside the sandbox, each call on a thread that it may
//! block.

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
use portcullis_types::{
    SafetyTier, Tool, ToolArgs, ToolContext, ToolError, ToolErrorKind, ToolOutput, async_trait,
};

use super::{
    AttemptOutcome, Backend, CallAttempt, overdue,
    reports::{on_progress, on_update},
};
use crate::{
    audit::Confinement,
    call::{Caller, NestingContext},
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
        pending: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let checked = attempt.checked;
        let has_called = Arc::new(AtomicBool::new(false));
        let ctx = context(attempt, Arc::clone(&has_called));
        let result = run(Arc::clone(&self.0), ctx, checked.args.clone(), attempt.time_limit).await;
        let harmless = pending.call.tier == Some(SafetyTier::ReadOnly) || checked.tool.meta().idempotent;
        // A tool that made calls itself is not attempted again, since that would repeat their effects.
        let may_retry = harmless && !has_called.load(Ordering::Relaxed) && is_unavailable(&result);
        Ok(AttemptOutcome { may_retry, ..AttemptOutcome::once(result) })
    }
}

/// The tool's context of the call.
fn context(attempt: CallAttempt<'_>, has_called: Arc<AtomicBool>) -> ToolContext {
    let CallAttempt { checked, caller, deadline, slot, grant, .. } = attempt;
    let call = &checked.call;
    let mut ctx = ToolContext::detached(&call.tool);
    ctx.call_id.clone_from(&call.id);
    ctx.run_id.clone_from(&caller.run_id);
    ctx.agent_id.clone_from(&caller.agent_id);
    ctx.space_id.clone_from(&caller.space_id);
    ctx.idempotency_key = digest::of_parts([&caller.agent_id, &caller.run_id, &call.id]);
    ctx.cancel = caller.cancel.child_token();
    ctx.deadline = Some(deadline);
    // A native tool's reports are passed on like a guest's frames.
    ctx.on_update = on_update(&call.id, caller, Some(grant.limits.max_output));
    ctx.on_progress = on_progress(&call.id, caller);
    let caller = Caller { slot: Some(slot.clone()), ..caller.clone() };
    ctx.extensions.insert(NestingContext { caller, has_called });
    ctx
}

fn is_unavailable(result: &Result<ToolOutput, ToolError>) -> bool {
    result.as_ref().is_err_and(|error| error.kind() == ToolErrorKind::Unavailable)
}

/// Runs a native tool without delaying other calls: a panic is contained, and a tool that blocks its thread
/// is abandoned at the deadline.
async fn run(
    tool: Arc<dyn Tool>,
    ctx: ToolContext,
    args: ToolArgs,
    time_limit: Duration,
) -> Result<ToolOutput, ToolError> {
    let cancel = ctx.cancel.clone();
    let deadline = ctx.deadline.unwrap_or_else(|| Instant::now() + time_limit);
    let stopped = cancel.clone();
    // Every end of the wait cancels the tool, also a caller that drops this future.
    let _stop = cancel.clone().drop_guard();
    let call = async move {
        let ran = AssertUnwindSafe(tool.call(&ctx, &args)).catch_unwind();
        // `biased`: cancellation and deadline win, so a tool is not polled after its time.
        tokio::select! {
            biased;
            () = stopped.cancelled() => Err(ToolError::cancelled("the call was cancelled")),
            () = tokio::time::sleep_until(deadline.into()) => Err(overdue(time_limit)),
            ran = ran => ran.unwrap_or_else(|_panic| Err(ToolError::internal("the tool panicked"))),
        }
    };
    let running = crate::spawn::blocking(call);
    tokio::select! {
        result = running => result?,
        () = cancel.cancelled() => Err(ToolError::cancelled("the call was cancelled")),
        () = tokio::time::sleep_until(deadline.into()) => Err(overdue(time_limit)),
    }
}
