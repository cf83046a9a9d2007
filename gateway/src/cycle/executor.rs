//! [`SpaceExecutor`]: refuses a visible call outside a space, and gives errors the shape of specification
//! 003.

use std::sync::Arc;

use portcullis_agent::{CallContext, OfferedTool, ToolExecutor};
use portcullis_tools::ToolRegistry;
use portcullis_types::{
    ToolCall, ToolError, ToolErrorCode, ToolErrorKind, ToolOutcome, ToolOutput, ToolResult, async_trait,
};
use serde_json::json;

use super::space::CycleSpace;

/// The key of a shaped error's details: whether a result can still be submitted.
const TAKES_RESULT: &str = "takesResult";

/// Wraps another executor. It refuses a visible tool outside a space, and turns errors into `{"error": "…"}`
/// (specification 003).
pub(super) struct SpaceExecutor<E> {
    pub(super) inner: E,
    pub(super) registry: Arc<ToolRegistry>,
    pub(super) space: Arc<CycleSpace>,
}

impl<E> SpaceExecutor<E> {
    /// Returns the tool's name if the tool is visible and the agent is in no space.
    fn visible_tool_outside_space(&self, call: &ToolCall) -> Option<String> {
        let tool = self.registry.get(&call.tool)?;
        let name = tool.descriptor().name.as_str();
        let is_visible = self.space.tool(name).is_some_and(|tool| tool.visible);
        (is_visible && self.space.entered().is_none()).then(|| name.to_owned())
    }
}

#[async_trait]
impl<E: ToolExecutor> ToolExecutor for SpaceExecutor<E> {
    fn offers(&self) -> Vec<OfferedTool> {
        self.inner.offers()
    }

    async fn execute(&self, call: ToolCall, context: &CallContext) -> ToolResult {
        if let Some(name) = self.visible_tool_outside_space(&call) {
            // Specification 003 sets this text, with its capital letters.
            let message =
                format!("Tool \"{name}\" is visible but you are not in a space. Call enter_space first.");
            let error = ToolError::failed(message).with_code(ToolErrorCode::NotInASpace);
            // Let the inner executor refuse the call, so that the refusal leaves an audit row.
            return error_as_output(self.inner.refuse(call, error, context));
        }
        error_as_output(self.inner.execute(call, context).await)
    }

    fn refuse(&self, call: ToolCall, error: ToolError, context: &CallContext) -> ToolResult {
        error_as_output(self.inner.refuse(call, error, context))
    }

    fn never_blocks(&self) -> bool {
        self.inner.never_blocks()
    }

    fn run_ended(&self, agent_id: &str, run_id: &str) {
        self.inner.run_ended(agent_id, run_id);
    }
}

/// Turns an error into the output `{"error": …}` (specification 003).
fn error_as_output(mut result: ToolResult) -> ToolResult {
    if let ToolOutcome::Error(error) = &result.outcome {
        // A closed call also has the kind of a timeout, but accepts no result.
        let takes_result =
            error.kind() == ToolErrorKind::Timeout && error.code() != ToolErrorCode::CallClosed.as_str();
        let output = ToolOutput::structured(json!({ "error": error.to_string() }));
        result.outcome = ToolOutcome::Output(output.with_details(json!({ TAKES_RESULT: takes_result })));
    }
    result
}

/// Returns the message of a shaped error, and whether a result can still be submitted. Returns `None` if the
/// output is not a shaped error.
pub(super) fn error_of_output(output: &ToolOutput) -> Option<(String, bool)> {
    let takes_result = output.details.get(TAKES_RESULT)?.as_bool()?;
    let message = output.structured.as_ref()?.get("error")?.as_str()?;
    Some((message.to_owned(), takes_result))
}
