//! [`ToolExecutor`]: runs the calls of a loop (specification 000, "ToolRegistry").

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    CancellationToken, EventFn, FunctionDecl, SafetyTier, ToolCall, ToolError, ToolResult, async_trait,
};

/// An owner of tools that runs calls of them, such as the registry. It applies every rule about a call; a
/// loop only decides when the call starts.
#[async_trait]
pub trait ToolExecutor: Send + Sync {
    /// The tools offered to a model, sorted by name. Read at the start of each turn.
    fn offers(&self) -> Vec<OfferedTool>;

    /// Runs one call. Refusals and failures are results too.
    ///
    /// # Cancellation
    /// Dropping the future or firing `terms.cancel` stops the call.
    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult;

    /// Records a call that the loop refused, and returns the refusal as its result. Reasons: the answer that
    /// asked for it was cut off, a person spoke in between, or the call was cancelled before it began. An
    /// executor with a log notes the call there. If one such note takes longer than a second, the loop skips
    /// those of the turn's remaining calls. Default: the result alone.
    fn refuse(&self, call: ToolCall, error: ToolError, _terms: &CallTerms) -> ToolResult {
        ToolResult::without_run(call, error)
    }

    /// Whether no call blocks its thread, except to write its log row. Then a loop runs a single call in its
    /// own task, since handing it to another thread takes longer than most calls. Calls of other executors
    /// run in separate tasks, which are abandoned if they block. Default: no.
    fn never_blocks(&self) -> bool {
        false
    }

    /// Called at the end of a run, also of a dropped one, so that leftovers of its calls can be cleaned up.
    /// Must not block. Default: nothing.
    fn run_ended(&self, _agent_id: &str, _run_id: &str) {}
}

#[async_trait]
impl<E: ToolExecutor + ?Sized> ToolExecutor for Arc<E> {
    fn offers(&self) -> Vec<OfferedTool> {
        (**self).offers()
    }

    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult {
        (**self).execute(call, terms).await
    }

    fn refuse(&self, call: ToolCall, error: ToolError, terms: &CallTerms) -> ToolResult {
        (**self).refuse(call, error, terms)
    }

    fn never_blocks(&self) -> bool {
        (**self).never_blocks()
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        (**self).run_ended(agent_id, run_id);
    }
}

/// A tool as a loop sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// The declaration for the model.
    pub decl: FunctionDecl,
    /// A name for people; none means the tool's own.
    pub label: Option<String>,
    /// The declared tier; none for an interface without tiers.
    pub tier: Option<SafetyTier>,
}

impl OfferedTool {
    /// Whether calls of the tool may run concurrently with others: it only reads, or declares no tier.
    #[must_use]
    pub fn runs_beside_others(&self) -> bool {
        matches!(self.tier, None | Some(SafetyTier::ReadOnly))
    }
}

/// The terms of a loop's call.
#[derive(Clone)]
pub struct CallTerms {
    /// The agent's id.
    pub agent_id: String,
    /// The run's id.
    pub run_id: String,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// Fires when the call is cancelled.
    pub cancel: CancellationToken,
    /// The end of the turn; no call continues after it. Default: none.
    pub turn_deadline: Option<Instant>,
    /// Takes the call's events; called synchronously, and must not block.
    pub on_event: Option<EventFn>,
}

impl fmt::Debug for CallTerms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallTerms")
            .field("agent_id", &self.agent_id)
            .field("run_id", &self.run_id)
            .field("turn_deadline", &self.turn_deadline)
            .finish_non_exhaustive()
    }
}
