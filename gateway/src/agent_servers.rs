//! `AgentServers`: the MCP servers of an agent's definition. Adds their tools to the registry of a cycle.

use portcullis_adapters::hsafa::McpServerConfiguration;
use portcullis_tools::{Caller, ToolRegistry, new_call};
use portcullis_types::{ToolName, ToolOutcome};
use serde_json::Value;

use crate::error::ApiError;

/// The servers of an agent.
#[derive(Debug, Clone, Default)]
pub(crate) struct AgentServers(Vec<McpServerConfiguration>);

impl AgentServers {
    /// Reads the servers of a definition.
    ///
    /// # Errors
    /// [`ApiError`] with all mistakes together.
    pub(crate) fn read(mcp: Option<&Value>) -> Result<Self, ApiError> {
        let Some(mcp) = mcp else { return Ok(Self::default()) };
        let read = McpServerConfiguration::read_all(mcp);
        Ok(Self(read.map_err(|error| ApiError::invalid("mcp", error.to_string()))?))
    }

    /// Returns the names of the servers, and of the tools that the definition allows from them.
    pub(crate) fn names(&self) -> impl Iterator<Item = &ToolName> {
        self.0.iter().flat_map(|server| std::iter::once(server.server.name()).chain(&server.allowed_tools))
    }

    /// Refuses names that the registry already has, and URLs that the policy refuses.
    ///
    /// # Errors
    /// [`ApiError`] if a name is taken, or if the registry refuses a server, for example because of its URL.
    pub(crate) fn ensure_can_be_added(&self, registry: &ToolRegistry) -> Result<(), ApiError> {
        // No server has been asked yet, so only the names in the definition can be compared.
        if let Some(taken) = self.names().find(|name| registry.get(name.as_str()).is_some()) {
            return Err(ApiError::invalid("mcp", format!("there is another tool `{taken}`")));
        }
        for McpServerConfiguration { server, .. } in &self.0 {
            let added = registry.add_configured_tool(server.listing());
            added.map_err(|error| ApiError::invalid("mcp", portcullis_types::error_chain(&error)))?;
        }
        Ok(())
    }

    /// Asks the servers for their tools, and adds the allowed ones. Each listing is a call with an audit row.
    /// Skips a server that does not answer and a tool that cannot be used; the next cycle asks again.
    pub(crate) async fn add_tools(&self, registry: &ToolRegistry, caller: &Caller) {
        // Ask the servers concurrently, so that the delays of slow ones do not add up.
        let listings = self.0.iter().map(|server| add_tools_of(server, registry, caller));
        futures_util::future::join_all(listings).await;
    }
}

async fn add_tools_of(configured: &McpServerConfiguration, registry: &ToolRegistry, caller: &Caller) {
    let McpServerConfiguration { server, allowed_tools, .. } = configured;
    let name = server.name().as_str();
    if let Err(error) = registry.add_configured_tool(server.listing()) {
        tracing::warn!(server = name, error = &error as &dyn std::error::Error, "an MCP server is skipped");
        return;
    }
    let call = new_call(name, "{}");
    let listed = registry.execute_with_policy(call, caller).await;
    if let ToolOutcome::Error(error) = &listed.outcome {
        tracing::warn!(server = name, error = %error, "the tools of an MCP server are not listed");
    }
    let tools = server.listed();
    // A server cannot give the model more tools than the definition allows.
    for allowed in allowed_tools {
        let Some(tool) = tools.iter().find(|tool| tool.name() == allowed.as_str()) else { continue };
        if let Err(error) = registry.add_configured_tool(server.tool(tool)) {
            let error = &error as &dyn std::error::Error;
            tracing::warn!(
                server = name,
                tool = allowed.as_str(),
                error,
                "a tool of an MCP server is skipped"
            );
        }
    }
}
