//! Adapts tools of Yoagent for the registry.
//!
//! Content for the model and details for people pass unchanged. Errors keep their kind and message. The tool
//! gets the call's updates, progress and cancellation. The interface has no tiers, so its tools count as
//! side-effecting.

use std::{sync::Arc, time::Duration};

use portcullis_types::{
    DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolOutput, async_trait,
};

use super::tool::AgentTool;
use crate::IntoTool;

/// The interface of Yoagent.
#[derive(Debug, Clone, Copy)]
pub enum Yoagent {}

impl<T: AgentTool + 'static> IntoTool<Yoagent> for T {
    fn into_tool(self) -> Arc<dyn Tool> {
        Arc::new(YoagentAdapter(self))
    }
}

struct YoagentAdapter<T>(T);

#[async_trait]
impl<T: AgentTool> Tool for YoagentAdapter<T> {
    fn schema(&self) -> FunctionDecl {
        FunctionDecl {
            name: self.0.name().to_owned(),
            description: Some(self.0.description().to_owned()),
            parameters: JsonSchema::new(self.0.parameters_schema()),
        }
    }

    /// Runs the tool in a detached context, which has neither a listener nor cancellation.
    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        let args = ToolArgs::parse(args).map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
        let ctx = ToolContext::detached(self.0.name());
        self.call(&ctx, &args).await.map(|output| output.joined_text())
    }

    fn timeout(&self) -> Duration {
        DEFAULT_TIMEOUT
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::SideEffecting
    }

    fn declared_tier(&self) -> Option<SafetyTier> {
        None
    }

    fn label(&self) -> Option<String> {
        Some(self.0.label().to_owned())
    }

    async fn call(&self, ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        let result = self.0.execute(args.value().clone(), ctx.into()).await?;
        Ok(result.into())
    }
}
