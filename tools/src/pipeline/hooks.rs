//! The program's own hooks, within the steps that they belong to: `before` and `repair` in the check of arguments,
//! `after` between the run and its shape. What a hook fails to say is a no.

use std::{future::Future, sync::Arc};

use portcullis_policy::{Denial, DenialCode};
use portcullis_types::ToolError;

use super::{Trail, admit::refuse, check::Checked, run::RawOutcome, turn::within_turn};
use crate::{
    call::Caller,
    hook::{BeforeCall, CallHook, HOOK_TIME, HookedCall, Hooks, MisfitCall},
    spawn,
};

/// What a model reads of a call whose result a hook could not be asked about.
const WITHHELD: &str = "the call ran, and its result is withheld: a hook of the program failed";

/// What one hook says to a call; arguments that it puts in place of the call's own.
pub(super) async fn before(
    hook: &Arc<dyn CallHook>,
    checked: &Checked,
    caller: &Caller,
    trail: &mut Trail,
) -> Result<Option<String>, ToolError> {
    let (hook, call) = (Arc::clone(hook), hooked(checked, caller));
    let said = answer(caller, async move { hook.before(&call).await }).await?;
    let reason = match said {
        Some(BeforeCall::Allow) => return Ok(None),
        Some(BeforeCall::Modify { arguments }) => return Ok(Some(arguments)),
        Some(BeforeCall::Deny { reason }) => reason,
        None => "a hook failed, and what it cannot be asked about does not run".to_owned(),
    };
    let subject = checked.tool.facts().name.to_string();
    Err(refuse(Denial { code: DenialCode::HookRefused, rule: RULE.to_owned(), subject, hint: reason }, trail))
}

/// Arguments in place of those that do not fit; none where no hook has any.
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

/// Hands what came of a call through the hooks.
pub(crate) async fn after(
    outcome: Result<RawOutcome, ToolError>,
    hooks: &Hooks,
    caller: &Caller,
) -> Result<RawOutcome, ToolError> {
    let mut raw = outcome?;
    for hook in hooks.iter().rev() {
        let (hook, call, result) = (Arc::clone(hook), hooked(&raw.checked, caller), raw.result.clone());
        let had_failed = result.is_err();
        // Not within the caller's turn: what has been done is to be told, whoever waits.
        let said = timed(async move { hook.after(&call, result).await }).await;
        raw.result = match said {
            Some(Ok(_)) if had_failed => Err(withheld()),
            Some(result) => result,
            None => Err(withheld()),
        };
    }
    Ok(raw)
}

/// The rule that a row names where a hook refuses.
const RULE: &str = "the program's hooks";

fn withheld() -> ToolError {
    ToolError::denied(WITHHELD).with_code("hook_failed")
}

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

/// A hook's answer, for as long as the caller waits; none where it fails or takes too long.
async fn answer<T: Send + 'static>(
    caller: &Caller,
    asked: impl Future<Output = T> + Send + 'static,
) -> Result<Option<T>, ToolError> {
    within_turn(caller, timed(asked)).await
}

async fn timed<T: Send + 'static>(asked: impl Future<Output = T> + Send + 'static) -> Option<T> {
    let answer = tokio::time::timeout(HOOK_TIME, spawn::apart(asked)).await.ok().flatten();
    if answer.is_none() {
        tracing::error!("a hook panicked, or did not answer within {HOOK_TIME:?}");
    }
    answer
}
