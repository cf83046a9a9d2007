//! Tools that are a configuration instead of code: HTTP tools, tools of MCP servers, external tools and internal tools.

use crate::{external::ExternalTool, http_tool::HttpTool, internal_tool::InternalTool, mcp_tool::McpTool};

/// A tool that a configuration describes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConfiguredTool {
    /// Each call is a request.
    Http(HttpTool),
    /// Each call is a request to an MCP server.
    Mcp(McpTool),
    /// The results of calls are submitted from outside.
    External(ExternalTool),
    /// Each call returns its arguments.
    Internal(InternalTool),
}

impl From<HttpTool> for ConfiguredTool {
    fn from(tool: HttpTool) -> Self {
        Self::Http(tool)
    }
}

impl From<McpTool> for ConfiguredTool {
    fn from(tool: McpTool) -> Self {
        Self::Mcp(tool)
    }
}

impl From<ExternalTool> for ConfiguredTool {
    fn from(tool: ExternalTool) -> Self {
        Self::External(tool)
    }
}

impl From<InternalTool> for ConfiguredTool {
    fn from(tool: InternalTool) -> Self {
        Self::Internal(tool)
    }
}
