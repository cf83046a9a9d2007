//! Step 5: runs the call. It takes a slot, writes the `begin` row if the call has effects, starts the
//! deadline, and runs the tool. A failed attempt is retried if that is harmless.

use std::time::{Duration, Instant};

use portcullis_policy::Grant;
use portcullis_types::{SafetyTier, ToolError, ToolEvent, ToolOutput};

use super::{
    Host, PendingRecord,
    authorize::{Authorized, refuse_flow},
    backend::{AttemptOutcome, CallAttempt, PendingResult, ResourceUsage},
    caller_deadline::{ensure_not_over, within_deadline},
    check::Checked,
    flow::judge_flow_again,
    heartbeat::WatchedCall,
    pending_record::unrecorded,
};
use crate::{
    approval::StepGrant,
    audit::Confinement,
    call::{Caller, StartingCall, cancelled_error},
    registered::RegisteredTool,
    run_labels::LabelGuard,
    slots::{AbandonOnDrop, CallSlot, ExclusiveLock},
};

/// The delays before the second and the third attempt.
const RETRY_PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// The outcome of the tool, before it is shaped.
#[derive(Debug)]
pub(crate) struct RawOutcome {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// Text for the model after the output. Truncation keeps it.
    pub(super) trailer: Option<String>,
    pub(super) usage: Option<ResourceUsage>,
    /// Set if the result is submitted later, from outside.
    pub(super) pending: Option<PendingResult>,
    pub(super) grant: Grant,
    pub(super) checked: Checked,
    /// How hooks changed the result.
    pub(super) hook_edit: HookEdit,
}

/// How hooks changed a result.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HookEdit {
    /// The result is the tool's.
    None,
    /// A hook replaced the result. The new content is not longer.
    Changed,
    /// A hook replaced the result by longer content.
    Lengthened,
}

/// Runs the call.
pub(crate) async fn run(
    authorized: Authorized,
    host: &Host,
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<RawOutcome, ToolError> {
    let Authorized { mut checked, grant, steps, exclusive } = authorized;
    let slot = take_slot(exclusive, host, caller).await?;
    // Prepare before judging the labels, because the run may read more data meanwhile.
    within_deadline(caller, prepare(&checked.tool, host)).await?;
    let run_context = host.labels.context(caller);
    if caller.operation_step.is_none() {
        // An operation itself has no grant to judge, only the grants of its steps.
        for grant in grants(&grant, &steps) {
            judge_flow_again(&checked, grant, host, &run_context)
                .map_err(|denial| refuse_flow(denial, pending_record))?;
        }
    }
    let forbidden_kinds = host.policy.forbidden_kinds(&grant, &run_context);
    begin(&checked, &grant, &steps, caller, pending_record).await?;
    let time_limit = match caller.turn_deadline {
        Some(turn_deadline) => {
            grant.limits.timeout.min(turn_deadline.saturating_duration_since(Instant::now()))
        }
        None => grant.limits.timeout,
    };
    // The deadline starts here, so that the waits for an approval and for a slot do not count.
    let deadline = Instant::now() + time_limit;
    let step = caller.operation_step.as_ref();
    let reader = step.and_then(|step| step.reads_as.as_ref()).unwrap_or(&checked.call.id);
    let labels = host.labels.track_call(caller, reader, &grant, &host.policy, deadline);
    if checked.tool.backend().confinement() == Confinement::Shell {
        label_command(&labels, &grant);
    }
    caller.emit(&ToolEvent::Started { call_id: checked.call.id.clone(), tool: checked.call.tool.clone() });
    // Frees the slot when the call returns, even if a native tool still blocks its thread. The slot of a
    // nested call belongs to its parent, which frees it.
    let is_abandonable = checked.tool.backend().may_block() && caller.slot.is_none();
    let _abandon_on_drop = is_abandonable.then(|| AbandonOnDrop(slot.clone()));
    let watched_call = WatchedCall::start(&checked.call.id, caller);
    let attempt = CallAttempt {
        checked: &checked,
        grant: &grant,
        slot: &slot,
        time_limit,
        deadline,
        labels: &labels,
        forbidden_kinds: forbidden_kinds.as_ref(),
        is_approved: pending_record.is_approved(),
        caller: watched_call.as_ref().map_or(caller, |watched_call| &watched_call.caller),
        host,
    };
    let (AttemptOutcome { result, trailer, usage, pending, .. }, tries) = {
        let mut outcome = std::pin::pin!(attempt_until_done(attempt, pending_record));
        match &watched_call {
            Some(watched_call) => watched_call.drive(&checked.call.id, outcome.as_mut()).await?,
            None => outcome.as_mut().await?,
        }
    };
    checked.notes.tries = tries;
    // `labels` is dropped here, before the result is released, because these labels apply to
    // the run's next call.
    Ok(RawOutcome { result, trailer, usage, pending, grant, checked, hook_edit: HookEdit::None })
}

/// Takes a slot. The step of an operation, and the nested call of a tool, take it below their parent's slot.
async fn take_slot(
    exclusive: Vec<ExclusiveLock>,
    host: &Host,
    caller: &Caller,
) -> Result<CallSlot, ToolError> {
    let slot = match &caller.slot {
        Some(parent) => {
            within_deadline(caller, host.slots.take_nested(parent, exclusive, &caller.cancel)).await??
        }
        None => within_deadline(caller, host.slots.take(exclusive, &caller.cancel)).await??,
    };
    // The turn may have ended right after the slot was taken.
    ensure_not_over(caller)?;
    Ok(slot)
}

/// Reports the start of a call to its listener, and writes the `begin` row if the call has effects.
async fn begin(
    checked: &Checked,
    grant: &Grant,
    steps: &[StepGrant],
    caller: &Caller,
    pending_record: &mut PendingRecord,
) -> Result<(), ToolError> {
    // The `begin` row lists all secrets that the call may send, in case the process dies during the call. The
    // `end` row lists the secrets that were sent.
    if checked.tool.backend().confinement() != Confinement::Native {
        pending_record.row.secrets =
            grant.initial_secrets().map(|secret| secret.name.as_str().into()).collect();
    }
    if let Some(start_listener) = &caller.start_listener
        && caller.operation_step.is_none()
    {
        let call = StartingCall {
            call_id: checked.call.id.clone(),
            tool: checked.tool.descriptor().name.to_string(),
            arguments: checked.args.text().to_owned(),
            may_repeat: checked.may_repeat(pending_record.row.tier),
            labels: grants(grant, steps).flat_map(Grant::possible_labels).collect(),
        };
        within_deadline(caller, start_listener.on_start(&call)).await??;
    }
    // A call that only reads has no effect to account for, so it needs no row before it runs.
    if pending_record.row.tier != Some(SafetyTier::ReadOnly) {
        pending_record.begin().map_err(|error| unrecorded(&error))?;
    }
    Ok(())
}

/// Labels the run with all data that a command may read.
fn label_command(labels: &LabelGuard, grant: &Grant) {
    // The kernel does not report which mounts a program accesses, and the output is streamed as it arrives.
    labels.mark_all_mounts_used();
    // A command with a network can receive any data, even through a background job of an earlier command.
    if grant.shell.as_ref().is_some_and(|shell| shell.network.is_some()) {
        labels.mark_web_read();
    }
}

/// Prepares the tool and, if it is an operation, its steps, which share the operation's timeout.
async fn prepare(tool: &RegisteredTool, host: &Host) {
    tool.backend().prepare(host).await;
    for step in tool.steps() {
        step.backend().prepare(host).await;
    }
}

/// Returns the grant of a call and the grants of its steps.
fn grants<'a>(own: &'a Grant, steps: &'a [StepGrant]) -> impl Iterator<Item = &'a Grant> {
    [own].into_iter().chain(steps.iter().map(|step| &step.grant))
}

/// Makes up to three attempts at a call, if a dependency is unavailable and a retry is harmless. All attempts
/// share one slot, one deadline and one row.
async fn attempt_until_done(
    attempt: CallAttempt<'_>,
    pending_record: &mut PendingRecord,
) -> Result<(AttemptOutcome, usize), ToolError> {
    for (retries, pause) in RETRY_PAUSES.into_iter().enumerate() {
        let mut outcome = attempt.checked.tool.backend().attempt(attempt, pending_record).await?;
        let resume = Instant::now() + pause;
        // A retry after the deadline could only time out.
        if !outcome.may_retry || resume >= attempt.deadline {
            return Ok((outcome, retries + 1));
        }
        tokio::select! {
            // `biased`: a cancelled call is not retried.
            biased;
            () = attempt.caller.cancel.cancelled() => {
                outcome.result = Err(cancelled_error());
                return Ok((outcome, retries + 1));
            }
            () = tokio::time::sleep_until(resume.into()) => {}
        }
    }
    Ok((attempt.checked.tool.backend().attempt(attempt, pending_record).await?, RETRY_PAUSES.len() + 1))
}
