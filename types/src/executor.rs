//! [`ToolExecutor`]: who runs the calls of a loop (specification 000, "ToolRegistry").

use std::{fmt, sync::Arc, time::Instant};

use crate::{
    CancellationToken, EventFn, FunctionDecl, SafetyTier, ToolCall, ToolError, ToolResult, async_trait,
};

/// Somebody who has tools and runs calls of them. The registry is one, and everything that holds for a call
/// holds behind it; a loop decides nothing about a call but when it starts.
#[async_trait]
pub trait ToolExecutor: Send + Sync {
    /// The tools that a model is offered, by name. Read at the start of each turn.
    fn offers(&self) -> Vec<OfferedTool>;

    /// Runs one call. Every refusal and every failure is a result too.
    ///
    /// # Cancellation
    /// Dropping the future or firing `terms.cancel` stops the call.
    async fn execute(&self, call: ToolCall, terms: &CallTerms) -> ToolResult;

    /// Gives a call its result that the loop refuses, for this reason: the answer that asked for it was cut off, a
    /// person spoke in between, or it was given up before it began. An executor that keeps a log notes it there.
    /// After one that takes longer than a second the rest of a turn's are not told. Default: the result alone.
    fn refuse(&self, call: ToolCall, error: ToolError, _terms: &CallTerms) -> ToolResult {
        ToolResult::without_run(call, error)
    }

    /// Whether no call blocks the thread that it runs on, but for its row in a log. Then a loop runs a call that
    /// stands alone in its own task: handing it to another thread takes longer than most calls. A call of others is
    /// left behind where it blocks. Default: no.
    fn never_blocks(&self) -> bool {
        false
    }

    /// A run of these is over, also where it was dropped: what its calls left behind can end. Must not block.
    /// Default: nothing.
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

/// A tool as a loop knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct OfferedTool {
    /// What the model is told.
    pub decl: FunctionDecl,
    /// The name for people; none means the tool's own.
    pub label: Option<String>,
    /// The tier that the tool declares; none for an interface that has no tiers.
    pub tier: Option<SafetyTier>,
}

impl OfferedTool {
    /// Whether calls of the tool may run beside others: it reads only, or says nothing of itself.
    #[must_use]
    pub fn runs_beside_others(&self) -> bool {
        matches!(self.tier, None | Some(SafetyTier::ReadOnly))
    }
}

/// On what terms a loop makes a call.
#[derive(Clone)]
pub struct CallTerms {
    /// The agent.
    pub agent_id: String,
    /// The run.
    pub run_id: String,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// Fires when the call is given up.
    pub cancel: CancellationToken,
    /// When the turn ends; no call goes on after it. Default: none.
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
