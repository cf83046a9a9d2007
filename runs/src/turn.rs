//! [`TurnExecutor`]: returns the stored results of a turn's calls to the step that collects them.

use std::{
    collections::HashMap,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use portcullis_agent::{AgentHandle, CallContext, OfferedTool, ToolExecutor, interrupted_error};
use portcullis_types::{Message, ToolCall, ToolError, ToolErrorCode, ToolResult};

use crate::{DrivenRun, driven::InterruptedCall};

/// Why the remaining calls of a turn are skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SkipReason {
    /// A person has written. The calls are skipped, and the model reads the message next.
    Steered,
    /// The run is cancelled.
    Cancelled,
}

/// An executor that runs no tool: it returns a call's stored result, or refuses the call.
pub(crate) struct TurnExecutor {
    inner: Arc<dyn ToolExecutor>,
    run: Arc<DrivenRun>,
    turn_results: HashMap<String, ToolResult>,
    /// The interruption that follows the call with this id. An earlier interruption would make the loop
    /// replace results that it has not read yet.
    skip_reason: OnceLock<(String, SkipReason, AgentHandle)>,
}

impl TurnExecutor {
    pub(crate) fn new(
        inner: Arc<dyn ToolExecutor>,
        run: Arc<DrivenRun>,
        turn_results: HashMap<String, ToolResult>,
    ) -> Self {
        Self { inner, run, turn_results, skip_reason: OnceLock::new() }
    }

    /// Returns whether a call has a result, or is known to have none.
    pub(crate) fn has_result(&self, call: &str) -> bool {
        self.turn_results.contains_key(call) || self.run.interrupted_call(call).is_some()
    }

    /// Interrupts the loop of this handle after the given call.
    pub(crate) fn interrupt_after(&self, call: String, skip_reason: SkipReason, handle: AgentHandle) {
        // Ignore the error: the value is set only once.
        let _ = self.skip_reason.set((call, skip_reason, handle));
    }
}

#[async_trait]
impl ToolExecutor for TurnExecutor {
    fn offers(&self) -> Vec<OfferedTool> {
        self.inner.offers()
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        let id = call.id.clone();
        let result = match (self.turn_results.get(&id), self.run.interrupted_call(&id)) {
            (Some(result), _) => result.clone(),
            (None, Some(InterruptedCall::Finished(result))) => ToolResult::clone(result),
            (None, Some(InterruptedCall::Unknown)) => self.inner.refuse(call, interrupted_error(), context),
            (None, None) => self.inner.refuse(call, not_run(), context),
        };
        if let Some((last, skip_reason, handle)) = self.skip_reason.get()
            && *last == id
        {
            interrupt(handle, *skip_reason);
        }
        result
    }

    fn refuse(&self, call: ToolCall, error: ToolError, context: &CallContext) -> ToolResult {
        self.inner.refuse(call, error, context)
    }

    /// Returns `true`: the results are already in memory.
    fn never_blocks(&self) -> bool {
        true
    }
}

/// Makes the loop skip the remaining calls. The message itself reaches the model with its next request, in
/// another loop.
pub(crate) fn interrupt(handle: &AgentHandle, skip_reason: SkipReason) {
    match skip_reason {
        SkipReason::Cancelled => handle.cancel(),
        // Ignore the error: a full queue already has a message.
        SkipReason::Steered => drop(handle.steer_with(Message::user(""))),
    }
}

/// The error of a call that no process could run.
fn not_run() -> ToolError {
    ToolError::unavailable("no process could run the call, so it was not run")
        .with_code(ToolErrorCode::NotRun)
}
