//! [`AgentTool`]: a tool of an agent's definition, and how spaces show its calls.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use portcullis_adapters::hsafa::{ToolConfiguration, read_configurations};
use portcullis_store::{GatewayStore, ParticipantKind};
use portcullis_tools::ToolRegistry;
use portcullis_types::ToolName;
use serde_json::Value;

use crate::{
    agent_servers::AgentServers,
    error::{ApiError, GatewayError},
    from_store,
    state::GatewayState,
};

/// The maximum number of tools of one agent's definition: 64.
pub(crate) const MAX_TOOLS: usize = 64;

/// The tools of an agent's definition, by name.
pub(crate) type AgentTools = Arc<BTreeMap<String, ToolConfiguration>>;

/// Reads the tools of a definition.
///
/// # Errors
/// [`ApiError`] with all mistakes together.
pub(crate) fn read(tools: &[Value]) -> Result<AgentTools, ApiError> {
    if tools.len() > MAX_TOOLS {
        return Err(ApiError::invalid("tools", format!("an agent has at most {MAX_TOOLS} tools")));
    }
    let text = Value::from(tools.to_vec()).to_string();
    let read = read_configurations(&text).map_err(|error| ApiError::invalid("tools", error.to_string()))?;
    Ok(Arc::new(read.into_iter().map(|tool| (tool.name.to_string(), tool)).collect()))
}

/// Creates the registry of an agent with these tools, without the built-in ones.
///
/// # Errors
/// Same as [`read`] and [`add`].
pub(crate) fn registry_of(
    state: &GatewayState,
    tools: &[Value],
) -> Result<(ToolRegistry, AgentTools), ApiError> {
    let tools = read(tools)?;
    // Fork the registry: two agents may use one name for different tools.
    let registry = state.registry.fork();
    add(&tools, &registry)?;
    Ok((registry, tools))
}

/// Returns the names of the tools in all agents' definitions, so that entries of the policy can name them.
///
/// # Errors
/// [`GatewayError::Store`] if the store cannot be read, or has a definition that cannot be parsed.
pub async fn tool_names(store: &dyn GatewayStore) -> Result<Vec<ToolName>, GatewayError> {
    let agents =
        portcullis_runs::all_rows(|page| store.participants(Some(ParticipantKind::Agent), page)).await?;
    let mut names = BTreeSet::new();
    for agent in agents {
        let definition = from_store::definition(&agent)?;
        for tool in definition.tools {
            names.extend(tool["name"].as_str().and_then(|name| ToolName::parse(name).ok()));
        }
        // A definition from an older version may have mistakes. Its next cycle reports them.
        let servers = AgentServers::read(definition.mcp.as_ref()).unwrap_or_default();
        names.extend(servers.names().cloned());
    }
    Ok(names.into_iter().collect())
}

/// Adds the tools to a registry that belongs to this agent only.
///
/// # Errors
/// [`ApiError`] for a name that another tool has, and for an unusable schema.
pub(crate) fn add(tools: &AgentTools, registry: &ToolRegistry) -> Result<(), ApiError> {
    for (name, tool) in &**tools {
        let added = registry.add_configured_tool(tool.to_tool());
        added.map_err(|error| {
            ApiError::invalid("tools", format!("`{name}`: {}", portcullis_types::error_chain(&error)))
        })?;
    }
    Ok(())
}
