//! `tools/list`: the list that `portcullis tools --mcp` prints, as protocol values.

use portcullis_tools::ToolRegistry;
use rmcp::model::Tool;

use super::{McpError, tool_catalog::ToolListFormat};

/// Returns all tools for a client, in order of name.
pub(super) fn tools(registry: &ToolRegistry) -> Result<Vec<Tool>, McpError> {
    let offered = ToolListFormat::Mcp.tools(registry);
    for remark in offered.remarks {
        tracing::warn!("{remark}");
    }
    let decode = |tool| serde_json::from_value(tool).map_err(|source| McpError::Listing { source });
    offered.tools.into_iter().map(decode).collect()
}
