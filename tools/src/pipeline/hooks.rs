//! Runs the program's hooks: `before` and `repair` during the check of arguments, `after` between run and
//! shape. A hook that fails or times out denies the call or withholds its outcome.

use std::{future::Future, sync::Arc, time::Duration};

use portcullis_policy::{Denial, DenialCode};
use portcullis_types::{ToolError, ToolErrorCode, ToolOutput};

use super::{
    Host, PendingRecord,
    admit::refuse,
    caller_deadline::{wait_until_over, within_deadline},
    check::Checked,
    run::{HookEdit, RawOutcome},
};
use crate::{
    call::Caller,
    hook::{BeforeCall, CallHook, HOOK_TIMEOUT, HookedCall, Hooks, InvalidCall},
    registered::RegisteredTool,
    spawn,
};

/// The timeout of the hooks after the caller has cancelled or its turn has ended: 1 s.
const FINAL_HOOK_TIMEOUT: Duration = Duration::from_secs(1);

/// Returns one hook's answer before a call. `Some` holds arguments that replace the call's own.
pub(super) async fn run_before_hook(
    hook: &Arc<dyn CallHook>,
    checked: &Checked,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Option<String>, ToolError> {
    let (hook, call) = (Arc::clone(hook), hooked_call(checked, caller));
    let answer = await_answer(caller, async move { hook.before(&call).await }).await?;
    match answer {
        Some(BeforeCall::Allow) => Ok(None),
        Some(BeforeCall::Modify { arguments }) => Ok(Some(arguments)),
        Some(BeforeCall::Deny { reason }) => Err(refuse_by_hook(&checked.tool, reason, pending_record)),
        None => {
            let reason = "a hook failed, so the call is refused".to_owned();
            Err(refuse_by_hook(&checked.tool, reason, pending_record))
        }
    }
}

/// Refuses a call because a hook gave it invalid arguments.
pub(super) fn refuse_invalid_call(
    tool: &RegisteredTool,
    error: &ToolError,
    pending_record: &mut PendingRecord,
) -> ToolError {
    tracing::error!(tool = %tool.descriptor().name, %error, "a hook replaced the arguments by invalid ones");
    refuse_by_hook(tool, "a hook replaced its arguments by invalid ones".to_owned(), pending_record)
}

fn refuse_by_hook(tool: &RegisteredTool, reason: String, pending_record: &mut PendingRecord) -> ToolError {
    let subject = tool.descriptor().name.to_string();
    refuse(
        Denial { code: DenialCode::HookRefused, rule: RULE.to_owned(), subject, hint: reason },
        pending_record,
    )
}

/// Returns a hook's replacement for invalid arguments. `None` if no hook has one.
pub(super) async fn repair(
    hooks: &Hooks,
    misfit: &InvalidCall,
    caller: &Caller,
) -> Result<Option<String>, ToolError> {
    for hook in hooks.iter() {
        let (hook, misfit) = (Arc::clone(hook), misfit.clone());
        let repaired = await_answer(caller, async move { hook.repair(&misfit).await }).await?;
        if let Some(Some(arguments)) = repaired {
            return Ok(Some(arguments));
        }
    }
    Ok(None)
}

/// Passes the outcome of a call through the hooks, which share [`HOOK_TIMEOUT`]. After the end of the caller's
/// turn they still have [`FINAL_HOOK_TIMEOUT`], because the effects of the call must be reported.
pub(crate) async fn run_after_hooks(
    outcome: Result<RawOutcome, ToolError>,
    host: &Host,
    caller: &Caller,
) -> Result<RawOutcome, ToolError> {
    let mut raw = outcome?;
    let hooks = &host.hooks;
    // A pending result passes the hooks later, when it enters the run.
    if hooks.is_empty() || raw.pending.is_some() {
        return Ok(raw);
    }
    let (result_before, bytes_before) = (raw.result.clone(), content_bytes(&raw));
    let too_late = async {
        tokio::select! {
            () = tokio::time::sleep(HOOK_TIMEOUT) => {}
            () = async { wait_until_over(caller).await; tokio::time::sleep(FINAL_HOOK_TIMEOUT).await } => {}
        }
    };
    let mut too_late = std::pin::pin!(too_late);
    // In reverse order, like layers around the call: the hook that saw the arguments first
    // sees the result last.
    for hook in hooks.iter().rev() {
        let (hook, call, result) = (Arc::clone(hook), hooked_call(&raw.checked, caller), raw.result.clone());
        let answering = spawn::spawn_task(async move { hook.after(&call, result).await });
        // `biased`: accept an answer that is ready, even if the timeout has passed.
        let answer = tokio::select! {
            biased;
            answer = answering => answer,
            () = &mut too_late => {
                log_hook_failure();
                raw.result = Err(withheld_error(raw.result));
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
                Err(withheld_error(result))
            }
        };
    }
    raw.hook_edit = if content_bytes(&raw) > bytes_before {
        HookEdit::Lengthened
    } else if raw.result != result_before {
        HookEdit::Changed
    } else {
        HookEdit::None
    };
    Ok(raw)
}

fn content_bytes(outcome: &RawOutcome) -> usize {
    outcome.result.as_ref().map_or(0, ToolOutput::content_bytes)
}

/// Returns the error that replaces an outcome if the hooks failed.
fn withheld_error(result: Result<ToolOutput, ToolError>) -> ToolError {
    let error = match result {
        Ok(_) => {
            ToolError::failed("the call ran; its result is withheld because a hook of the program failed")
        }
        Err(error) => ToolError::new(
            error.kind(),
            "the call failed; the reason is withheld because a hook of the program failed",
        ),
    };
    error.with_code(ToolErrorCode::HookFailed)
}

/// The rule that the audit row shows if a hook refuses a call.
const RULE: &str = "the program's hooks";

fn hooked_call(checked: &Checked, caller: &Caller) -> HookedCall {
    HookedCall {
        call_id: checked.call.id.clone(),
        agent_id: caller.agent_id.clone(),
        run_id: caller.run_id.clone(),
        tool: checked.call.tool.clone(),
        tier: checked.tool.descriptor().declared_tier,
        arguments: checked.args.value().clone(),
    }
}

/// Waits for a hook's answer as long as the caller waits. `None` if the hook panics or times out.
async fn await_answer<T: Send + 'static>(
    caller: &Caller,
    answering: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, ToolError> {
    within_deadline(caller, with_hook_timeout(answering)).await
}

async fn with_hook_timeout<T: Send + 'static>(
    answering: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let answer = tokio::time::timeout(HOOK_TIMEOUT, spawn::spawn_task(answering)).await.ok().flatten();
    if answer.is_none() {
        log_hook_failure();
    }
    answer
}

fn log_hook_failure() {
    tracing::error!("a hook panicked, or did not answer in time");
}
