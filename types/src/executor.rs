//! [`ToolExecutor`]: runs the calls of an agent loop.

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    CancellationToken, EventFn, FunctionDecl, SafetyTier, ToolCall, ToolError, ToolResult, async_trait,
};

/// Owns tools and runs their calls, as the registry does. The executor enforces all rules about a call; the
/// loop only decides when the call starts.
#[async_trait]
pub trait ToolExecutor: Send + Sync {
    /// Returns the tools to offer to a model, sorted by name. A loop reads them at the start of each turn.
    fn offers(&self) -> Vec<OfferedTool>;

    /// Runs one call. A refusal or a failure is a result too.
    ///
    /// # Cancellation
    /// Dropping the future or cancelling `context.cancel` stops the call.
    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult;

    /// Records a call that the loop refused, and returns the refusal as its result. The loop refuses a call
    /// if the response that requested it was cut off, if a person spoke in between, or if the call was
    /// cancelled before it started. An executor with a log records the refusal there. If one such record
    /// takes longer than a second, the loop skips this method for the turn's remaining calls. Default: only
    /// returns the result.
    fn refuse(&self, call: ToolCall, error: ToolError, _context: &CallContext) -> ToolResult {
        ToolResult::without_run(call, error)
    }

    /// Whether calls never block their thread, except to write their log row. A loop then runs a single call in
    /// its own task, because another task takes longer than most calls. Otherwise each call has a task, which the
    /// loop abandons if it blocks. Default: no.
    fn never_blocks(&self) -> bool {
        false
    }

    /// Called at the end of a run, also of a dropped one, so that the executor can clean up after the run's
    /// calls. Must not block. Default: nothing.
    fn run_ended(&self, _agent_id: &str, _run_id: &str) {}
}

#[async_trait]
impl<E: ToolExecutor + ?Sized> ToolExecutor for Arc<E> {
    fn offers(&self) -> Vec<OfferedTool> {
        (**self).offers()
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        (**self).execute(call, context).await
    }

    fn refuse(&self, call: ToolCall, error: ToolError, context: &CallContext) -> ToolResult {
        (**self).refuse(call, error, context)
    }

    fn never_blocks(&self) -> bool {
        (**self).never_blocks()
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        (**self).run_ended(agent_id, run_id);
    }
}

/// A tool, as a loop sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// The declaration for the model.
    pub decl: FunctionDecl,
    /// A name for people; `None` means the tool's own name.
    pub label: Option<String>,
    /// The declared tier; `None` for an interface without tiers.
    pub tier: Option<SafetyTier>,
}

impl OfferedTool {
    /// Whether calls of the tool may run concurrently with others: the tool only reads, or declares no tier.
    #[must_use]
    pub fn may_run_concurrently(&self) -> bool {
        matches!(self.tier, None | Some(SafetyTier::ReadOnly))
    }
}

/// The context in which a loop makes a call.
#[derive(Clone)]
pub struct CallContext {
    /// The agent's id.
    pub agent_id: String,
    /// The run's id.
    pub run_id: String,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// Cancelled when the call is cancelled.
    pub cancel: CancellationToken,
    /// The end of the turn. No call continues past it. Default: none.
    pub turn_deadline: Option<Instant>,
    /// Receives the call's events. It is called synchronously, so it must not block.
    pub on_event: Option<EventFn>,
}

impl fmt::Debug for CallContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("agent_id", &self.agent_id)
            .field("run_id", &self.run_id)
            .field("turn_deadline", &self.turn_deadline)
            .finish_non_exhaustive()
    }
}
