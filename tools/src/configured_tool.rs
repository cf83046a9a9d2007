//! Tools that are a configuration instead of code: HTTP tools, external tools and internal tools.

use crate::{external::ExternalTool, http_tool::HttpTool, internal_tool::InternalTool};

/// A tool that a configuration describes.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum ConfiguredTool {
    /// Each call is a request.
    Http(HttpTool),
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
