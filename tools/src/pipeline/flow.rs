//! Judges a call by the flow rules again when time has passed since its authorization: before it runs, after
//! its wait for a slot; before a command, once it has its session; and before each request of a guest.

use std::sync::Arc;

use portcullis_policy::{Approval, Denial, DenialCode, FlowLabel, Grant, RunFacts};

use super::{Host, PendingRecord, check::Checked};
use crate::call::Caller;

/// The run by which a call is judged. Its labels are noted in the row.
pub(super) fn judged_run<'c>(host: &Host, caller: &'c Caller, pending: &mut PendingRecord) -> RunFacts<'c> {
    let mut run = host.labels.facts(caller);
    pending.call.labels = run.labels.keys().map(|label| label.to_string().into()).collect();
    // A fetch makes several requests, and was judged and asked about as a whole.
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

/// Refuses a call that meets a stricter flow rule than it was granted under, because its run has read more
/// since.
///
/// # Errors
/// The denial. A new call is judged by the labels that the run has by then.
pub(super) fn judge_flow_again(
    checked: &Checked,
    grant: &Grant,
    host: &Host,
    run: &RunFacts<'_>,
) -> Result<(), Denial> {
    let Some(matched) = host.policy.strictest_flow_match(grant, run) else { return Ok(()) };
    let granted = grant.flow.as_ref().map_or(Approval::Allow, |matched| matched.approval);
    if matched.approval <= granted {
        return Ok(());
    }
    Err(Denial {
        code: DenialCode::FlowDenied,
        rule: matched.rule.clone(),
        subject: checked.tool.facts().name.to_string(),
        hint: format!(
            "call `{}` of this run has read `{}` since this one was granted; call it again. {}",
            matched.call_id,
            matched.label,
            matched.place()
        ),
    })
}
