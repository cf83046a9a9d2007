//! Judges a call by the flow rules again, because time has passed since its authorization: after the wait for
//! a slot, when a command has its session, and before each request of a guest.

use std::sync::Arc;

use portcullis_policy::{Approval, Denial, DenialCode, FlowLabel, Grant, RunContext};

use super::{Host, PendingRecord, check::Checked};
use crate::call::Caller;

/// Returns the run by whose labels a call is judged, and records the labels in the row.
pub(super) fn judged_run<'c>(
    host: &Host,
    caller: &'c Caller,
    pending_record: &mut PendingRecord,
) -> RunContext<'c> {
    let mut run = host.labels.context(caller);
    pending_record.row.labels = run.labels.keys().map(|label| label.to_string().into()).collect();
    // An operation was judged and approved as a whole, so ignore the labels of its own earlier requests.
    if let Some(operation) = caller.operation_step.as_ref().and_then(|step| step.reads_as.as_deref()) {
        let is_own = |label: &FlowLabel, reader: &str| {
            reader == operation && matches!(label, FlowLabel::Web | FlowLabel::Secret(_))
        };
        if run.labels.iter().any(|(label, reader)| is_own(label, reader)) {
            Arc::make_mut(&mut run.labels).retain(|label, reader| !is_own(label, reader));
        }
    }
    run
}

/// Refuses a call if a stricter flow rule applies than at its authorization, because its run has
/// read more data since.
///
/// # Errors
/// The denial. A retried call is judged by the labels that the run has then.
pub(super) fn judge_flow_again(
    checked: &Checked,
    grant: &Grant,
    host: &Host,
    run: &RunContext<'_>,
) -> Result<(), Denial> {
    let Some(flow_match) = host.policy.strictest_flow_match(grant, run) else { return Ok(()) };
    let granted_approval = grant.flow.as_ref().map_or(Approval::Allow, |flow_match| flow_match.approval);
    if flow_match.approval <= granted_approval {
        return Ok(());
    }
    Err(Denial {
        code: DenialCode::FlowDenied,
        rule: flow_match.rule.clone(),
        subject: checked.tool.descriptor().name.to_string(),
        hint: format!(
            "call `{}` of this run has read `{}` since this one was granted; call it again. {}",
            flow_match.call_id,
            flow_match.label,
            flow_match.describe_for_hint()
        ),
    })
}
