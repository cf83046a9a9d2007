//! Step 5: the call itself. It takes a place, its `begin` row is written if it has effects, the deadline
//! starts, and the tool runs, once more where that can do no harm.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_policy::Grant;
use portcullis_types::{SafetyTier, ToolError, ToolEvent, ToolOutput};

use super::{
    Trail,
    attempt::{Attempt, GuestUsage, Tried},
    authorize::Authorized,
    check::Checked,
    heartbeat::Watched,
    trail::unrecorded,
    turn::{ensure_wanted, within_turn},
};
use crate::{
    call::Caller,
    places::{LeaveOnDrop, Places},
    registered::Backend,
    registry::ToolRegistry,
    sandbox::HostWasmToolRunner,
};

/// How long is waited before each further try.
const PAUSES: [Duration; 2] = [Duration::from_millis(100), Duration::from_millis(400)];

/// What came of the tool, before it is fit to be shown.
#[derive(Debug)]
pub(crate) struct RawOutcome {
    pub(super) result: Result<ToolOutput, ToolError>,
    /// What a model reads after the text, whatever is cut from that.
    pub(super) trailer: Option<String>,
    pub(super) usage: Option<GuestUsage>,
    pub(super) grant: Grant,
    pub(super) checked: Checked,
    /// Whether hooks have made the text longer than the tool did.
    pub(super) has_grown: bool,
    /// Whether hooks have made anything else of the result than the tool did.
    pub(super) has_changed: bool,
}

/// Runs the call.
pub(crate) async fn run(
    authorized: Authorized,
    places: &Places,
    runner: Option<&HostWasmToolRunner>,
    steps: Option<&Arc<ToolRegistry>>,
    caller: &Caller,
    trail: &mut Trail,
) -> Result<RawOutcome, ToolError> {
    let Authorized { mut checked, grant, writes } = authorized;
    let place = match &caller.place {
        Some(parent) => within_turn(caller, places.within(parent, writes, &caller.cancel)).await??,
        None => within_turn(caller, places.take(writes, &caller.cancel)).await??,
    };
    ensure_wanted(caller)?;
    if trail.row.tier != Some(SafetyTier::ReadOnly) {
        trail.begin().map_err(|error| unrecorded(&error))?;
    }
    let time_limit = match caller.turn_deadline {
        Some(turn) => grant.limits.timeout.min(turn.saturating_duration_since(Instant::now())),
        None => grant.limits.timeout,
    };
    let deadline = Instant::now() + time_limit;
    caller.emit(&ToolEvent::Started { call_id: checked.call.id.clone(), tool: checked.call.tool.clone() });
    // However the wait ends, a thread that a native tool blocks keeps no place. A call that a tool makes leaves that to
    // its parent.
    let leaves = matches!(checked.tool.backend(), Backend::Native(_)) && caller.place.is_none();
    let _leave = leaves.then(|| LeaveOnDrop(place.clone()));
    let watched = Watched::of(&checked.call.id, caller);
    let attempt = Attempt {
        checked: &checked,
        grant: &grant,
        place: &place,
        time_limit,
        deadline,
        caller: watched.as_ref().map_or(caller, |watched| &watched.caller),
        runner,
        steps,
    };
    let (Tried { result, trailer, usage, .. }, tries) = {
        let mut tried = std::pin::pin!(try_until_done(attempt, trail));
        match &watched {
            Some(watched) => watched.drive(&checked.call.id, tried.as_mut()).await?,
            None => tried.as_mut().await?,
        }
    };
    checked.notes.tries = tries;
    Ok(RawOutcome { result, trailer, usage, grant, checked, has_grown: false, has_changed: false })
}

/// Tries a call, a few times where what it needs is not there and another try changes nothing. All tries are the same
/// call: one place, one deadline, one row.
async fn try_until_done(attempt: Attempt<'_>, trail: &mut Trail) -> Result<(Tried, usize), ToolError> {
    for (before, pause) in PAUSES.into_iter().enumerate() {
        let mut tried = attempt.make(trail).await?;
        let resume = Instant::now() + pause;
        if !tried.may_try_again || resume >= attempt.deadline {
            return Ok((tried, before + 1));
        }
        tokio::select! {
            biased;
            () = attempt.caller.cancel.cancelled() => {
                tried.result = Err(ToolError::cancelled("the call was cancelled"));
                return Ok((tried, before + 1));
            }
            () = tokio::time::sleep_until(resume.into()) => {}
        }
    }
    Ok((attempt.make(trail).await?, PAUSES.len() + 1))
}
