//! Started calls: the tool calls of a run that have begun, and may therefore have had effects, with their
//! results.

use crate::json::Json;

/// A tool call that is about to begin.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewStartedCall {
    /// The id of the call, unique in the run.
    pub call: String,
    /// The tool that the call names.
    pub tool: String,
    /// The arguments that the call runs with.
    pub arguments: Json,
    /// Whether the call may run again if its process ends before the call does: it only reads, or its tool
    /// recognizes a repeated call by the id.
    pub may_repeat: bool,
    /// An upper bound on the flow labels that the call adds. Used if the call's end is never recorded.
    pub labels: Vec<String>,
}

/// A call of the run that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedCall {
    /// The id of the call.
    pub call: String,
    /// The tool that the call names.
    pub tool: String,
    /// The arguments that the call runs with.
    pub arguments: Json,
    /// Whether the call may run again.
    pub may_repeat: bool,
    /// The number of times that it has begun.
    pub attempts: i64,
    /// When it last began.
    pub started_at: i64,
    /// When it finished. `None` if it runs, or if its process ended first.
    pub finished: Option<i64>,
    /// The result. `None` if `finished` is `None`.
    pub result: Option<Json>,
    /// The flow labels that the call has added, or adds at most if it has not finished.
    pub labels: Vec<String>,
}

/// A call that is written together with the step that has its result. It may run again if its process ends
/// before, so its start is not recorded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FinishedCall {
    /// The call. Its labels are those that it has added.
    pub started: NewStartedCall,
    /// When it began.
    pub started_at: i64,
    /// When it finished.
    pub finished: i64,
    /// The result that the model gets.
    pub result: Json,
}

/// Whether a call may run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CallStart {
    /// It may run now: it is new, or it may be repeated.
    Begun {
        /// 1 for a new call.
        attempt: i64,
    },
    /// The call has already finished. Use its stored result.
    Finished(StartedCall),
    /// The call has begun before and may not be repeated. Its effects are unknown, and the model is told so.
    Unknown(StartedCall),
}

/// The end of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallFinish {
    /// The id of the call.
    pub call: String,
    /// The result that the model gets.
    pub result: Json,
    /// The flow labels that the call has added. A resumed run that uses the stored result adds them again.
    pub labels: Vec<String>,
}
