//! The seam between task files and the pipeline of calls. The processor decides which call of a file is next; a
//! [`TaskCallRunner`] runs it.

use std::{collections::BTreeSet, sync::Arc};

use async_trait::async_trait;
use portcullis_types::{ToolCall, ToolError, ToolResult};

/// Runs the calls of task files.
#[async_trait]
pub trait TaskCallRunner: Send + Sync {
    /// Runs a call. Called once for each attempt at a call, in document order within a file, and at the same time for
    /// several files.
    ///
    /// The implementation must call `before` when all checks and approvals are done and nothing has happened yet, and
    /// must end the call without an effect if `before` refuses. A call that is refused earlier needs no `before`.
    ///
    /// # Cancellation
    /// If the future is dropped after `before`, the effects of the call are unknown.
    async fn run(&self, call: TaskCall, before: Arc<dyn BeforeEffects>) -> TaskCallEnd;

    /// Called when no call of a task is left for now. Shell sessions and labels of the task's run can be dropped.
    fn task_paused(&self, _task: &str) {}
}

/// Called before a call's first effect; an error stops the call.
#[async_trait]
pub trait BeforeEffects: Send + Sync {
    /// Writes into the task file that the call begins.
    ///
    /// # Errors
    /// The call's error. The call then must not run.
    async fn begin(&self, call: BeginningEffects) -> Result<(), ToolError>;
}

/// The facts of a call that is about to run.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct BeginningEffects {
    /// Whether the call can be repeated safely.
    pub may_repeat: bool,
    /// The flow labels that the call brings to its task at most.
    pub labels: BTreeSet<String>,
}

/// A call of a task file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCall {
    /// The name of the task's file. It names the run that the call belongs to.
    pub task: String,
    /// The call.
    pub call: ToolCall,
    /// The binding that a person has approved, by moving the task: that of the question in the ledger. The call runs
    /// without a further question only if its question has the same binding.
    pub approved: Option<String>,
    /// The flow labels that earlier calls brought to the task.
    pub labels: BTreeSet<String>,
}

/// How a call ended.
#[derive(Debug, Clone, PartialEq)]
pub enum TaskCallEnd {
    /// The call has a result.
    Ended(ToolResult),
    /// The call needs a person's approval, and nothing has happened.
    NeedsApproval {
        /// The binding of an approval, over tool, arguments, grants and policy.
        binding: String,
        /// The question, in one line.
        question: String,
    },
}
