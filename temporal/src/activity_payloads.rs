//! The messages between the workflow and its activities: ids, names and small texts.
//!
//! Recorded histories contain these values. Add fields only with a default, and never rename or remove one.

use portcullis_runs::SkipReason;
use serde::{Deserialize, Serialize};

/// The input of `setup`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct SetupInput {
    /// The id of the run.
    pub(crate) run: String,
    /// The prompt of a new run.
    #[serde(default)]
    pub(crate) prompt: Option<String>,
}

/// The input of the other steps.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StepInput {
    /// The id of the run.
    pub(crate) run: String,
    /// The version that the step follows.
    pub(crate) version: i64,
    /// Messages of a person, for the model.
    #[serde(default)]
    pub(crate) steering: Vec<String>,
    /// Why the step's remaining calls are skipped.
    #[serde(default, rename = "interruption")]
    pub(crate) skip_reason: Option<WireSkipReason>,
}

/// Why the remaining calls of a step are skipped: [`SkipReason`] as it is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum WireSkipReason {
    /// A person has written.
    Steered,
    /// A person has cancelled the run.
    Cancelled,
}

impl From<WireSkipReason> for SkipReason {
    fn from(reason: WireSkipReason) -> Self {
        match reason {
            WireSkipReason::Steered => Self::Steered,
            WireSkipReason::Cancelled => Self::Cancelled,
        }
    }
}

/// The input of `run_tool`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct CallInput {
    /// The id of the run.
    pub(crate) run: String,
    /// The version of the run before the turn's step.
    pub(crate) version: i64,
    /// The id of the call.
    pub(crate) call: String,
    /// The name of the call's tool.
    pub(crate) tool: String,
    /// Whether the worker that asked the model offers the tool.
    pub(crate) offered: bool,
}

/// The input of `answer`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct AnswerInput {
    /// The id of the run.
    pub(crate) run: String,
    /// The answer to a question, as the signal has delivered it.
    pub(crate) answer: crate::workflow_payloads::ApprovalSignal,
}

/// The position of the run after an activity.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct RunPositionPayload {
    /// The version of the run.
    pub(crate) version: i64,
    /// The next step.
    pub(crate) next: String,
    /// The calls of the next step.
    #[serde(default)]
    pub(crate) calls: Vec<NextCallPlacement>,
    /// The status of the run.
    pub(crate) status: String,
    /// Whether the namespace has the search attributes. Only `setup` sets it.
    #[serde(default)]
    pub(crate) searchable: bool,
}

/// A call, and the task queue that runs it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct NextCallPlacement {
    /// The call's id.
    pub(crate) id: String,
    /// The name of the call's tool.
    pub(crate) tool: String,
    /// The task queue. `None` means the queue of the workflow.
    #[serde(default)]
    pub(crate) queue: Option<String>,
    /// Whether the worker that asked the model offers the tool.
    pub(crate) offered: bool,
}

/// How a call of a step ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum CallCompletion {
    /// The result is in the store.
    Stored,
    /// The run has continued without the call.
    #[serde(rename = "passed")]
    RunContinued,
}
