//! Judges a call by the flow rules again, where time has passed since it was authorized: before it runs, after it has
//! waited for its slot, and before each request of a guest.

use std::sync::Arc;

use portcullis_policy::{Approval, Denial, DenialCode, FlowLabel, Grant};

use super::{Host, check::Checked};
use crate::call::Caller;

/// Refuses a call that meets a stricter flow rule than it was granted under: its run has read on. What the call itself
/// has read of its mounts counts, and what it has requested does not: an approval covers all requests of a call.
///
/// # Errors
/// The denial. The caller calls again, and is judged or asked about by what was read.
pub(super) fn judge_flow_again(
    checked: &Checked,
    grant: &Grant,
    host: &Host,
    caller: &Caller,
) -> Result<(), Denial> {
    let mut run = host.labels.facts(caller);
    let own = &checked.call.id;
    let by_own_request = |label: &FlowLabel, call_id: &str| {
        call_id == own && matches!(label, FlowLabel::Web | FlowLabel::Secret(_))
    };
    if run.labels.iter().any(|(label, call_id)| by_own_request(label, call_id)) {
        Arc::make_mut(&mut run.labels).retain(|label, call_id| !by_own_request(label, call_id));
    }
    let Some(matched) = host.policy.strictest_flow_match(grant, &run) else { return Ok(()) };
    let granted = grant.flow.as_ref().map_or(Approval::Allow, |matched| matched.approval);
    if matched.approval <= granted {
        return Ok(());
    }
    Err(Denial {
        code: DenialCode::FlowDenied,
        rule: matched.rule,
        subject: checked.tool.facts().name.to_string(),
        hint: format!(
            "call `{}` of this run has read `{}` since this one was granted; call it again",
            matched.call_id, matched.label
        ),
    })
}
