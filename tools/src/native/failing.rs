//! `failing_tool`: always fails. It shows how failures are reported and recorded.

use std::time::Duration;

use portcullis_types::{DEFAULT_TIMEOUT, FunctionDecl, SafetyTier, Tool, ToolError, async_trait};
use serde_json::json;

use super::input::declare;

/// Always fails, by default with the message `Tool execution failed`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FailingTool(ToolError);

impl FailingTool {
    /// Fails with a message that the model reads.
    #[must_use]
    pub fn with_tool_error(message: impl Into<String>) -> Self {
        Self(ToolError::failed(message))
    }

    /// Fails with an internal error. The operator gets the message, and the model gets a generic one.
    #[must_use]
    pub fn with_internal_error(message: impl Into<String>) -> Self {
        Self(ToolError::internal(message))
    }
}

impl Default for FailingTool {
    fn default() -> Self {
        Self::with_tool_error("Tool execution failed")
    }
}

#[async_trait]
impl Tool for FailingTool {
    fn schema(&self) -> FunctionDecl {
        declare("failing_tool", "Always fails. For testing how errors are handled.", &json!({}), &[])
    }

    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        Err(self.0.clone())
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn failing_tool_returns_the_requested_error() {
        async fn message(tool: FailingTool) -> String {
            tool.execute("{}").await.expect_err("fails").to_string()
        }
        assert_eq!(message(FailingTool::default()).await, "Tool execution failed");
        assert_eq!(message(FailingTool::with_tool_error("City not found")).await, "City not found");
        let internal = message(FailingTool::with_internal_error("password is hunter2")).await;
        assert_eq!(internal, ToolError::INTERNAL_MESSAGE);
    }
}
