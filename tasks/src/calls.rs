//! The interface between task files and the pipeline of calls. The processor decides which call of a file is
//! next, and a [`TaskCallRunner`] runs it.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use portcullis_types::{ToolCall, ToolError, ToolResult};

/// Runs the calls of task files.
#[async_trait]
pub trait TaskCallRunner: Send + Sync {
    /// Runs a call. Called once for each attempt at a call. Calls of one file come in document order, calls
    /// of several files concurrently.
    ///
    /// The implementation must call `before` after all checks and approvals and before the first effect. If
    /// `before` refuses, the call must end without an effect. A call that is refused earlier needs no
    /// `before`.
    ///
    /// # Cancellation
    /// If the future is dropped after `before`, the effects of the call are unknown.
    async fn run(&self, call: TaskCall, before: Arc<dyn CallStartRecorder>) -> TaskRunnerResult;

    /// Called when a task has no more calls for now. The shell sessions and labels of the task's run can be
    /// dropped.
    fn task_paused(&self, _task: &str) {}
}

/// Called before a call's first effect. An error stops the call.
#[async_trait]
pub trait CallStartRecorder: Send + Sync {
    /// Records in the task file that the call begins.
    ///
    /// # Errors
    /// The call's error. The call must not run then.
    async fn begin(&self, call: TaskCallStart) -> Result<(), ToolError>;
}

/// The facts of a call that is about to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TaskCallStart {
    /// Whether the call can be repeated safely.
    pub may_repeat: bool,
    /// The flow labels that the call can add to its task.
    pub labels: BTreeSet<String>,
}

/// A call of a task file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCall {
    /// The name of the task's file. The call's run has the same name.
    pub task: String,
    /// The call, with its id, tool and arguments.
    pub call: ToolCall,
    /// The binding of the question in the ledger, if a person has approved it by moving the task. The call
    /// runs without a further question only if its question has the same binding.
    pub approved: Option<String>,
    /// The flow labels that earlier calls have added to the task.
    pub labels: BTreeSet<String>,
}

/// The outcome of a call, from its runner.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskRunnerResult {
    /// The call has a result.
    Ended(ToolResult),
    /// The call needs a person's approval, and has had no effect.
    NeedsApproval {
        /// The binding of an approval, over tool, arguments, grants and policy.
        binding: String,
        /// The question, in one line.
        question: String,
    },
}
