//! Runs the calls of task files through the registry, as every front end does.

use std::sync::Arc;

use async_trait::async_trait;
use portcullis_tasks::{CallStartRecorder, TaskCall, TaskCallRunner, TaskCallStart, TaskRunnerResult};
use portcullis_tools::{
    CallStartListener, Caller, StartingCall, ToolRegistry,
    policy::{DenialCode, FlowLabel, Operation},
};
use portcullis_types::{CancellationToken, ToolError, ToolErrorCode, ToolResult};

use super::approver::{TaskApprovals, TaskApprover};

/// The agent of the calls of task files.
const TASKS_AGENT_ID: &str = "tasks";

/// Runs calls through the registry. Each task is a separate run.
pub(super) struct RegistryCallRunner {
    registry: Arc<ToolRegistry>,
    approvals: TaskApprovals,
    cancel: CancellationToken,
}

impl RegistryCallRunner {
    pub(super) fn new(
        registry: Arc<ToolRegistry>,
        approvals: TaskApprovals,
        cancel: CancellationToken,
    ) -> Self {
        Self { registry, approvals, cancel }
    }
}

#[async_trait]
impl TaskCallRunner for RegistryCallRunner {
    async fn run(&self, call: TaskCall, before: Arc<dyn CallStartRecorder>) -> TaskRunnerResult {
        let mut caller = caller(&call.task);
        caller.cancel = self.cancel.child_token();
        let mut labels = Vec::with_capacity(call.labels.len());
        for label in &call.labels {
            match label.parse::<FlowLabel>() {
                Ok(label) => labels.push((label, EARLIER_CALL.to_owned())),
                // A `[[flow]]` rule could depend on the label, so the call must not run without it.
                Err(error) => {
                    let error = ToolError::denied(format!(
                        "the task's ledger has the unknown label `{label}`: {error}"
                    ));
                    return TaskRunnerResult::Ended(self.registry.refuse(
                        call.call,
                        &caller,
                        error.with_code(ToolErrorCode::TaskLabel),
                    ));
                }
            }
        }
        self.registry.add_run_labels(&caller, labels);
        let approver = Arc::new(TaskApprover::new(self.approvals, call.approved));
        caller.approver = Some(Arc::clone(&approver) as _);
        caller.start_listener = Some(Arc::new(RecordingStartListener(before)));
        let result = self.registry.execute_with_policy(call.call, &caller).await;
        let is_unanswered = result
            .outcome
            .error()
            .is_some_and(|error| error.code() == DenialCode::ApprovalUnavailable.as_str());
        match approver.take_open().filter(|_| is_unanswered) {
            Some((binding, question)) => TaskRunnerResult::NeedsApproval { binding, question },
            None => TaskRunnerResult::Ended(add_hint(result)),
        }
    }

    fn task_paused(&self, task: &str) {
        self.registry.end_run(&caller(task));
    }
}

/// Adds advice about the configuration, if the call named a tool that the policy could offer.
fn add_hint(mut result: ToolResult) -> ToolResult {
    let section = match &*result.tool {
        name if Operation::needs_search_provider(name) => "[search]",
        name if Operation::needs_notify(name) => "[notify]",
        _ => return result,
    };
    result.outcome = result.outcome.map_error(|error| {
        if error.code() == ToolErrorCode::UnknownTool.as_str() {
            error.with_hint(format!("the tool exists if the policy has `{section}`"))
        } else {
            error
        }
    });
    result
}

/// The origin of the labels that a task had before this process read it.
const EARLIER_CALL: &str = "an earlier call of the task";

fn caller(task: &str) -> Caller {
    Caller::new(TASKS_AGENT_ID, format!("task:{task}"))
}

/// Records in the task file that a call starts.
struct RecordingStartListener(Arc<dyn CallStartRecorder>);

#[async_trait]
impl CallStartListener for RecordingStartListener {
    async fn on_start(&self, call: &StartingCall) -> Result<(), ToolError> {
        let labels = call.labels.iter().map(ToString::to_string).collect();
        self.0.begin(TaskCallStart { may_repeat: call.may_repeat, labels }).await
    }
}
