//! Step 2: parses and validates the arguments (see [`crate::arguments`]). The program's hooks can repair
//! invalid arguments, and refuse or change valid ones.

use std::sync::Arc;

use portcullis_policy::ToolOrigin;
use portcullis_types::{SafetyTier, ToolArgs, ToolCall, ToolError};
use sha2::{Digest, Sha256};

use super::{Host, PendingRecord, hooks, resolve::Resolved};
use crate::{
    arguments::{CheckedArguments, Repairs},
    call::Caller,
    hook::{Hooks, InvalidCall},
    registered::RegisteredTool,
};

/// A call whose arguments fit its tool.
#[derive(Debug)]
pub(crate) struct Checked {
    pub(super) call: ToolCall,
    pub(super) tool: Arc<RegisteredTool>,
    pub(super) args: ToolArgs,
    pub(super) notes: CallNotes,
}

impl Checked {
    /// Whether the call can be retried safely. It can in each of these cases:
    ///
    /// - `tier`, the tool's tier under the policy, is `ReadOnly`.
    /// - The tool declares itself idempotent. The declaration of a foreign module's tool is not trusted.
    /// - A retry continues the first call.
    pub(super) fn may_repeat(&self, tier: Option<SafetyTier>) -> bool {
        let is_foreign = self.tool.descriptor().origin == ToolOrigin::ForeignModule;
        tier == Some(SafetyTier::ReadOnly)
            || (self.tool.meta().idempotent && !is_foreign)
            || self.tool.backend().may_resume()
    }
}

/// Notes on a call, for the details of its result.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct CallNotes {
    pub(super) repaired: Vec<String>,
    pub(super) ignored: Vec<String>,
    /// Whether a hook replaced the model's arguments.
    pub(super) hooked: bool,
    /// The number of attempts.
    pub(super) tries: usize,
}

/// Checks the arguments.
pub(crate) async fn check(
    resolved: Resolved,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Checked, ToolError> {
    let (call, tool) = resolved.into_parts();
    check_again(call, tool, host, caller, pending_record).await
}

/// Validates arguments of a known tool: the call's own, or those with which an approver replaced them.
pub(super) async fn check_again(
    call: ToolCall,
    tool: Arc<RegisteredTool>,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Checked, ToolError> {
    let hooks = &host.hooks;
    let mut checked = match check_against_schema(&call.arguments, &tool, pending_record) {
        Ok((args, notes)) => Checked { call, tool, args, notes },
        // Hooks do not repair the arguments of a privileged tool: a dangerous call must not rest on a guess.
        Err(error) if hooks.is_empty() || is_privileged(&tool) => return Err(error),
        Err(error) => repaired_by_hooks(call, tool, error, hooks, caller, pending_record).await?,
    };
    for hook in hooks.iter() {
        if let Some(arguments) = hooks::run_before_hook(hook, &checked, caller, pending_record).await? {
            let model_args_sha256 = pending_record.row.args_sha256.clone();
            let Checked { call, tool, .. } = checked;
            checked = match check_with_arguments(call, Arc::clone(&tool), arguments, pending_record) {
                Ok(checked) => checked,
                // The mistake is the hook's, so the model has nothing to correct. The row keeps the hash of
                // the model's arguments.
                Err(error) => {
                    pending_record.row.args_sha256 = model_args_sha256;
                    return Err(hooks::refuse_invalid_call(&tool, &error, pending_record));
                }
            };
        }
    }
    Ok(checked)
}

/// Asks the hooks for valid arguments.
async fn repaired_by_hooks(
    call: ToolCall,
    tool: Arc<RegisteredTool>,
    error: ToolError,
    hooks: &Hooks,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<Checked, ToolError> {
    let misfit = InvalidCall {
        call_id: call.id.clone(),
        tool: call.tool.clone(),
        parameters: tool.decl().parameters.as_value().clone(),
        arguments: call.arguments.clone(),
        error: error.clone(),
    };
    let Some(arguments) = hooks::repair(hooks, &misfit, caller).await? else { return Err(error) };
    let model_args_sha256 = pending_record.row.args_sha256.clone();
    // If the hook's arguments do not fit either, report the error of the model's arguments, and record their hash.
    check_with_arguments(call, tool, arguments, pending_record).map_err(|_other| {
        pending_record.row.args_sha256 = model_args_sha256;
        error
    })
}

/// Replaces the call's arguments with a hook's, and validates them.
fn check_with_arguments(
    mut call: ToolCall,
    tool: Arc<RegisteredTool>,
    arguments: String,
    pending_record: &mut PendingRecord,
) -> Result<Checked, ToolError> {
    let (args, mut notes) = check_against_schema(&arguments, &tool, pending_record)?;
    notes.hooked = true;
    call.arguments = arguments;
    Ok(Checked { call, tool, args, notes })
}

/// Checks arguments against the tool's schema.
fn check_against_schema(
    arguments: &str,
    tool: &RegisteredTool,
    pending_record: &mut PendingRecord,
) -> Result<(ToolArgs, CallNotes), ToolError> {
    pending_record.row.args_sha256 = Some(hex::encode(Sha256::digest(arguments.as_bytes())).into());
    let repairs = if is_privileged(tool) { Repairs::Off } else { Repairs::Allowed };
    let CheckedArguments { args, repaired, ignored } = tool.schema().check(arguments, repairs)?;
    if repairs == Repairs::Off {
        tool.schema().ensure_whole_numbers(&args)?;
    }
    let args = tool.with_absolute_paths(args);
    Ok((args, CallNotes { repaired, ignored, ..CallNotes::default() }))
}

fn is_privileged(tool: &RegisteredTool) -> bool {
    tool.descriptor().declared_tier == Some(SafetyTier::Privileged)
}
