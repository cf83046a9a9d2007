//! The input of one step of a run, its outcome, and the progress of the run after it.

use portcullis_agent::AgentEnd;
use portcullis_store::RunStatus;
use portcullis_types::Message;

use crate::turn::SkipReason;

/// How far a run has come.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunPosition {
    /// The version of the run. The next step must name it.
    pub version: i64,
    /// The name of the next step, as [`RunState::next_step`](portcullis_agent::RunState::next_step) gives it.
    pub next: &'static str,
    /// The calls whose results the next step needs, in order.
    pub calls: Vec<NextCall>,
    /// The status of the run.
    pub status: RunStatus,
}

/// A call of the next step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NextCall {
    /// The call's id.
    pub id: String,
    /// The tool, as the model names it.
    pub tool: String,
    /// Whether this process offers a tool of this name.
    pub is_offered: bool,
}

/// The input of a step that comes from outside the run. The default is none.
#[derive(Debug, Clone, Default)]
pub struct NextStepInput {
    /// Messages for the model. They reach it if the step asks the model.
    pub steering: Vec<Message>,
    /// Set if a person has written or cancelled in the meantime.
    pub skip_reason: Option<SkipReason>,
}

/// The result of a step.
#[derive(Debug, Clone, PartialEq)]
pub enum StepOutcome {
    /// The step was taken, now or earlier.
    Taken(RunPosition),
    /// The run would have ended this way, but the caller wants to retry. Nothing was stored.
    NotStored(AgentEnd),
}

/// How a call of a turn ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StepCallOutcome {
    /// The result is stored, now or earlier. A refusal is a result too.
    Stored,
    /// The call was cancelled before it had any effect, and has no result.
    CancelledBeforeStart,
    /// The run has continued without the call.
    RunContinued,
}
