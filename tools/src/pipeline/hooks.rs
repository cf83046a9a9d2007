//! The program's own hooks, within their steps: `before` and `repair` in the check of arguments, `after`
//! between run and shape. A hook that fails or times out denies the call or withholds its outcome.

use std::{future::Future, sync::Arc, time::Duration};

use portcullis_policy::{Denial, DenialCode};
use portcullis_types::{ToolError, ToolOutput};

use super::{
    Host, PendingRecord,
    admit::refuse,
    caller_deadline::{over, within_deadline},
    check::Checked,
    run::RawOutcome,
};
use crate::{
    call::Caller,
    hook::{BeforeCall, CallHook, HOOK_TIME, HookedCall, Hooks, MisfitCall},
    registered::RegisteredTool,
    spawn,
};

/// Time for the hooks after the caller has left, or after its turn's deadline.
const FINAL_HOOK_TIME: Duration = Duration::from_secs(1);

/// One hook's answer before a call: `Some` are arguments in place of the call's own.
pub(super) async fn run_before_hook(
    hook: &Arc<dyn CallHook>,
    checked: &Checked,
    caller: &Caller,
    pending: &mut PendingRecord,
) -> Result<Option<String>, ToolError> {
    let (hook, call) = (Arc::clone(hook), hooked(checked, caller));
    let answer = answer(caller, async move { hook.before(&call).await }).await?;
    match answer {
        Some(BeforeCall::Allow) => Ok(None),
        Some(BeforeCall::Modify { arguments }) => Ok(Some(arguments)),
        Some(BeforeCall::Deny { reason }) => Err(refused(&checked.tool, reason, pending)),
        None => {
            let reason = "a hook failed, so the call is refused".to_owned();
            Err(refused(&checked.tool, reason, pending))
        }
    }
}

/// The refusal of a call whose arguments a hook changed to some that do not fit.
pub(super) fn misfit(tool: &RegisteredTool, error: &ToolError, pending: &mut PendingRecord) -> ToolError {
    tracing::error!(tool = %tool.facts().name, %error, "a hook changed arguments to some that do not fit");
    refused(tool, "a hook gave it arguments that do not fit".to_owned(), pending)
}

fn refused(tool: &RegisteredTool, reason: String, pending: &mut PendingRecord) -> ToolError {
    let subject = tool.facts().name.to_string();
    refuse(Denial { code: DenialCode::HookRefused, rule: RULE.to_owned(), subject, hint: reason }, pending)
}

/// A hook's arguments in place of those that do not fit; none if no hook has any.
pub(super) async fn repair(
    hooks: &Hooks,
    misfit: &MisfitCall,
    caller: &Caller,
) -> Result<Option<String>, ToolError> {
    for hook in hooks.iter() {
        let (hook, misfit) = (Arc::clone(hook), misfit.clone());
        let mended = answer(caller, async move { hook.repair(&misfit).await }).await?;
        if let Some(Some(arguments)) = mended {
            return Ok(Some(arguments));
        }
    }
    Ok(None)
}

/// Passes the outcome of a call through the hooks, which have [`HOOK_TIME`] together. They run even after the
/// caller's turn, for [`FINAL_HOOK_TIME`]: the effects of the call must be reported.
pub(crate) async fn run_after_hooks(
    outcome: Result<RawOutcome, ToolError>,
    host: &Host,
    caller: &Caller,
) -> Result<RawOutcome, ToolError> {
    let mut raw = outcome?;
    let hooks = &host.hooks;
    if hooks.is_empty() {
        return Ok(raw);
    }
    let (before, bytes_before) = (raw.result.clone(), content_bytes(&raw));
    let too_late = async {
        tokio::select! {
            () = tokio::time::sleep(HOOK_TIME) => {}
            () = async { over(caller).await; tokio::time::sleep(FINAL_HOOK_TIME).await } => {}
        }
    };
    let mut too_late = std::pin::pin!(too_late);
    for hook in hooks.iter().rev() {
        let (hook, call, result) = (Arc::clone(hook), hooked(&raw.checked, caller), raw.result.clone());
        let answering = spawn::spawn_task(async move { hook.after(&call, result).await });
        // `biased`: an answer that is ready counts, even at the time limit.
        let answer = tokio::select! {
            biased;
            answer = answering => answer,
            () = &mut too_late => {
                log_hook_failure();
                raw.result = Err(withheld(raw.result));
                return Ok(raw);
            }
        };
        raw.result = match (answer, raw.result) {
            (Some(Ok(_)), Err(error)) => {
                tracing::error!(tool = %raw.checked.call.tool, "a hook gave a result for a failed call; the error is kept");
                Err(error)
            }
            (Some(result), _) => result,
            (None, result) => {
                log_hook_failure();
                Err(withheld(result))
            }
        };
    }
    raw.has_grown = content_bytes(&raw) > bytes_before;
    raw.has_changed = raw.result != before;
    Ok(raw)
}

fn content_bytes(raw: &RawOutcome) -> usize {
    raw.result.as_ref().map_or(0, ToolOutput::content_bytes)
}

/// The error in place of an outcome that a hook failed to see.
fn withheld(result: Result<ToolOutput, ToolError>) -> ToolError {
    let error = match result {
        Ok(_) => ToolError::failed("the call ran, and its result is withheld: a hook of the program failed"),
        Err(error) => {
            ToolError::new(error.kind(), "the call failed, and why is withheld: a hook of the program failed")
        }
    };
    error.with_code("hook_failed")
}

/// The rule in the audit row when a hook refuses.
const RULE: &str = "the program's hooks";

fn hooked(checked: &Checked, caller: &Caller) -> HookedCall {
    HookedCall {
        call_id: checked.call.id.clone(),
        agent_id: caller.agent_id.clone(),
        run_id: caller.run_id.clone(),
        tool: checked.call.tool.clone(),
        tier: checked.tool.facts().declared_tier,
        arguments: checked.args.value().clone(),
    }
}

/// A hook's answer, while the caller waits; none if the hook panics or times out.
async fn answer<T: Send + 'static>(
    caller: &Caller,
    answering: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, ToolError> {
    within_deadline(caller, timed(answering)).await
}

async fn timed<T: Send + 'static>(answering: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let answer = tokio::time::timeout(HOOK_TIME, spawn::spawn_task(answering)).await.ok().flatten();
    if answer.is_none() {
        log_hook_failure();
    }
    answer
}

fn log_hook_failure() {
    tracing::error!("a hook panicked, or did not answer in time");
}
