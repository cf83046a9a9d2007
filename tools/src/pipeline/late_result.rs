//! The late result of a pending call. When it enters its run, it passes through the hooks and the shape step
//! like every result, and gets its own row.

use portcullis_policy::{CallRequest, FlowLabel, Grant, RunContext};
use portcullis_types::{ToolArgs, ToolCall, ToolError, ToolResult};
use serde_json::Value;

use super::{
    Host, PendingRecord,
    admit::refuse,
    backend::submitted_output,
    check::{CallNotes, Checked},
    record, resolve,
    run::{HookEdit, RawOutcome},
    run_after_hooks, shape,
};
use crate::call::Caller;

/// The late result of a pending call.
#[derive(Debug, Clone, PartialEq)]
pub struct LateResult {
    /// The id of the pending call.
    pub id: String,
    /// The name of the called tool.
    pub tool: String,
    /// The JSON text of the arguments.
    pub arguments: String,
    /// The submitted result.
    pub result: Value,
}

/// Accepts a late result into the run of its call. The result is withheld if its tool no longer exists or the
/// policy denies the tool at present.
pub(crate) async fn take(
    late: LateResult,
    host: &Host,
    caller: &Caller,
    mut pending_record: PendingRecord,
) -> ToolResult {
    // The events of the call ended with the call.
    let caller = &Caller { on_event: None, ..caller.clone() };
    pending_record.is_late = true;
    pending_record.row.operation_id = Some(late.id.as_str().into());
    let LateResult { id, tool, arguments, result } = late;
    // Label the run before the model gets the text.
    host.labels.add_labels(&caller.owner(), [(FlowLabel::Web, id.clone())]);
    let outcome =
        judge(ToolCall { id, tool, arguments }, host, caller, &mut pending_record).map(|(checked, grant)| {
            RawOutcome {
                result: Ok(submitted_output(result)),
                trailer: None,
                usage: None,
                pending: None,
                grant,
                checked,
                hook_edit: HookEdit::None,
            }
        });
    let outcome = run_after_hooks(outcome, host, caller).await;
    let shaped = shape(outcome, host, caller, &pending_record);
    record(shaped, caller, pending_record)
}

/// Returns the checked call, with the grant that it would get at present.
fn judge(
    call: ToolCall,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<(Checked, Grant), ToolError> {
    let args =
        ToolArgs::parse(&call.arguments).map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
    let (call, tool) = resolve(call, host, caller, pending_record)?.into_parts();
    // The arguments were judged when the call was made. Only the grant of the tool may have changed since.
    let request = CallRequest { tool: tool.descriptor(), subjects: &[], run: &RunContext::default() };
    let grant = host.policy.authorize(&request).map_err(|denial| refuse(denial, pending_record))?;
    Ok((Checked { call, tool, args, notes: CallNotes::default() }, grant))
}
