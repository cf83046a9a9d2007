//! The default tools of a Yoagent agent.

use std::sync::Arc;

use portcullis_types::{FunctionDecl, Tool, ToolArgs, async_trait};

use super::types::{AgentTool, ToolContext, ToolError, ToolResult};

/// Returns the shipped tools that need no workspace: time, echo, arithmetic. They run under the shipped
/// policy, as in every other front end. The values are placeholders, for which an
/// [`Agent`](super::agent::Agent) registers the shipped tools.
///
/// Tools for files and commands need a workspace, and programs of Yoagent name none.
/// [`Agent::with_runtime`](super::agent::Agent::with_runtime) adds `file_read`, `file_write`, `file_edit`,
/// `file_list`, `file_search`, `file_delete`, `vault_copyto` and, if the builder has a place for a shell,
/// `shell_exec`. It can be used with or without the tools of this function.
#[must_use]
pub fn default_tools() -> Vec<Box<dyn AgentTool>> {
    let shipped = portcullis_tools::native::tools_for_models().into_iter();
    shipped.map(|tool| -> Box<dyn AgentTool> { Box::new(ShippedTool::new(tool)) }).collect()
}

/// A placeholder of a shipped tool, with the interface of Yoagent.
struct ShippedTool {
    decl: FunctionDecl,
    label: String,
    tool: Arc<dyn Tool>,
}

impl ShippedTool {
    fn new(tool: Arc<dyn Tool>) -> Self {
        let decl = tool.schema();
        let label = tool.label().unwrap_or_else(|| decl.name.clone());
        Self { decl, label, tool }
    }
}

#[async_trait]
impl AgentTool for ShippedTool {
    fn name(&self) -> &str {
        &self.decl.name
    }

    fn label(&self) -> &str {
        &self.label
    }

    fn stands_for_shipped(&self) -> bool {
        true
    }

    fn description(&self) -> &str {
        self.decl.description.as_deref().unwrap_or_default()
    }

    fn parameters_schema(&self) -> serde_json::Value {
        self.decl.parameters.as_value().clone()
    }

    async fn execute(&self, params: serde_json::Value, ctx: ToolContext) -> Result<ToolResult, ToolError> {
        let args = ToolArgs::parse(&params.to_string())
            .map_err(|error| ToolError::InvalidArgs(error.to_string()))?;
        let mut context = portcullis_types::ToolContext::detached(&ctx.tool_name);
        context.call_id = ctx.tool_call_id;
        context.cancel = ctx.cancel;
        context.on_progress = ctx.on_progress;
        context.on_update = ctx.on_update.map(|listener| -> portcullis_types::ToolUpdateFn {
            Arc::new(move |partial| listener(partial.into()))
        });
        self.tool.call(&context, &args).await.map(Into::into).map_err(|error| (&error).into())
    }
}
