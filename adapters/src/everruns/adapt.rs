//! Adapts tools of Everruns for the registry.
//!
//! A result becomes structured output with its JSON text, a tool's error becomes `failed`, and an internal error
//! becomes `internal`. The interface has no tiers, so its tools count as side-effecting.

use std::{sync::Arc, time::Duration};

use portcullis_types::{
    DEFAULT_TIMEOUT, FunctionDecl, JsonSchema, SafetyTier, ToolArgs, ToolContext, ToolError, ToolOutput,
    ToolPolicy, async_trait,
};

use super::tool::Tool;
use crate::IntoTool;

/// The interface of Everruns.
#[derive(Debug, Clone, Copy)]
pub enum Everruns {}

impl<T: Tool + 'static> IntoTool<Everruns> for T {
    fn into_tool(self) -> Arc<dyn portcullis_types::Tool> {
        Arc::new(EverrunsAdapter(self))
    }
}

struct EverrunsAdapter<T>(T);

#[async_trait]
impl<T: Tool> portcullis_types::Tool for EverrunsAdapter<T> {
    fn schema(&self) -> FunctionDecl {
        FunctionDecl {
            name: self.0.name().to_owned(),
            description: Some(self.0.description().to_owned()),
            parameters: JsonSchema::new(self.0.parameters_schema()),
        }
    }

    async fn execute(&self, args: &str) -> Result<String, ToolError> {
        let arguments =
            serde_json::from_str(args).map_err(|error| ToolError::invalid_arguments(error.to_string()))?;
        let outcome: Result<ToolOutput, ToolError> = self.0.execute(arguments).await.into();
        outcome.map(|output| output.joined_text())
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

    fn policy(&self) -> ToolPolicy {
        self.0.policy()
    }

    async fn call(&self, _ctx: &ToolContext, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        self.0.execute(args.value().clone()).await.into()
    }
}
