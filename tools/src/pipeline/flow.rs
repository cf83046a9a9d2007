//! Judges a call by the flow rules again when time has passed since its authorization: before it runs, after
//! its wait for a slot; before a command, once it has its session; and before each request of a guest.

use portcullis_policy::{Approval, Denial, DenialCode, Grant, RunFacts};

use super::{Host, check::Checked};

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
        rule: matched.rule,
        subject: checked.tool.facts().name.to_string(),
        hint: format!(
            "call `{}` of this run has read `{}` since this one was granted; call it again",
            matched.call_id, matched.label
        ),
    })
}
