//! [`StoredExecutor`]: runs the calls of a driven run, each at most once.

use std::sync::Arc;

use async_trait::async_trait;
use portcullis_agent::{CallContext, OfferedTool, ToolExecutor, interrupted_error};
use portcullis_types::{ToolCall, ToolError, ToolResult};

use crate::{DrivenRun, driven::InterruptedCall};

/// Wraps an executor. A call that began before its step was interrupted does not run again, unless it may be
/// repeated. It gets its stored result, or the model is told that its effects are unknown.
///
/// The inner executor must report each call to the run before the call's first effect, through
/// [`Caller::start_listener`](portcullis_tools::Caller::start_listener).
#[derive(Debug)]
pub struct StoredExecutor<E> {
    inner: E,
    run: Arc<DrivenRun>,
}

impl<E: ToolExecutor> StoredExecutor<E> {
    /// Creates the executor of this run's calls.
    #[must_use]
    pub fn new(inner: E, run: Arc<DrivenRun>) -> Self {
        Self { inner, run }
    }
}

#[async_trait]
impl<E: ToolExecutor> ToolExecutor for StoredExecutor<E> {
    fn offers(&self) -> Vec<OfferedTool> {
        self.inner.offers()
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        match self.run.interrupted_call(&call.id) {
            Some(InterruptedCall::Finished(result)) => return ToolResult::clone(result),
            // The refusal leaves an audit row. In the log, the call has a begin but no end.
            Some(InterruptedCall::Unknown) => return self.inner.refuse(call, interrupted_error(), context),
            None => {}
        }
        let result = self.inner.execute(call, context).await;
        self.run.finish(&result).await;
        result
    }

    fn refuse(&self, call: ToolCall, error: ToolError, context: &CallContext) -> ToolResult {
        self.inner.refuse(call, error, context)
    }

    fn never_blocks(&self) -> bool {
        self.inner.never_blocks()
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        self.inner.run_ended(agent_id, run_id);
    }
}
