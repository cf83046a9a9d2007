//! Tools of servers that speak the Model Context Protocol over HTTP. A configuration names the server, and
//! the server lists its tools. The host makes the requests, so the policy's rules for hosts, addresses,
//! methods, redirects, sizes and secrets apply to them.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use portcullis_egress::HeaderValue;
use portcullis_policy::{HttpMethod, PinStatus, ToolDescriptor, ToolOrigin};
use portcullis_types::{
    FunctionDecl, InvalidToolName, JsonSchema, SafetyTier, ToolMeta, ToolName, is_deceptive,
};
use rmcp::model::Tool;
use thiserror::Error;
use tokio::sync::Mutex as AsyncMutex;

use crate::{
    http_tool::{HttpTarget, InvalidHttpTarget},
    registered::parse_name,
    registry::RegistryError,
};

/// The maximum number of tools that are read from one server. Any further tools are ignored.
pub const MAX_REMOTE_TOOLS: usize = 1024;

/// The maximum number of pages that are read from a listing. Any further pages are ignored, because a server
/// can send empty pages without end, and the audit row of the listing records each request.
pub(crate) const MAX_LISTED_PAGES: usize = 128;

/// The timeout of a listing: 10 s. An agent waits for the listing before its cycle.
const LISTING_TIMEOUT: Duration = Duration::from_secs(10);

/// The maximum length of the description of a remote tool, in bytes.
const MAX_DESCRIPTION_BYTES: usize = 16 << 10;

/// A configured MCP server, with its open session if there is one. Clones share the session.
#[derive(Clone)]
pub struct RemoteMcpServer(Arc<McpServerInner>);

struct McpServerInner {
    name: ToolName,
    target: HttpTarget,
    /// Held while a session starts, so that concurrent calls share one session.
    session: AsyncMutex<Option<McpSession>>,
    listed: Mutex<Vec<RemoteTool>>,
    last_id: AtomicU64,
}

/// A session of a server (Model Context Protocol 2025-11-25, "Session Management").
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct McpSession {
    /// The session's id, if the server gave one.
    pub(crate) id: Option<HeaderValue>,
    /// The revision of the protocol that the server chose.
    pub(crate) version: HeaderValue,
}

impl fmt::Debug for RemoteMcpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RemoteMcpServer")
            .field("name", &self.0.name)
            .field("target", &self.0.target)
            .finish_non_exhaustive()
    }
}

impl RemoteMcpServer {
    /// Creates a server with this name and URL. Makes no request.
    ///
    /// # Errors
    /// All mistakes in the URL at once.
    pub fn new(name: ToolName, url: &str) -> Result<Self, Vec<InvalidHttpTarget>> {
        Ok(Self(Arc::new(McpServerInner {
            name,
            target: HttpTarget::new(url, HttpMethod::Post, [])?,
            session: AsyncMutex::default(),
            listed: Mutex::default(),
            last_id: AtomicU64::new(0),
        })))
    }

    /// The name of the server. Its [listing](Self::listing) has the same name.
    #[must_use]
    pub fn name(&self) -> &ToolName {
        &self.0.name
    }

    /// Returns a tool that lists the server's tools, with the server's name. It is hidden from models. After
    /// a call, [`Self::listed`] returns the tools.
    #[must_use]
    pub fn listing(&self) -> McpTool {
        let decl = FunctionDecl {
            name: self.0.name.to_string(),
            description: Some("Lists the tools of an MCP server.".to_owned()),
            parameters: JsonSchema::new(serde_json::json!({"type": "object", "additionalProperties": false})),
        };
        let meta = ToolMeta { hidden: true, ..ToolMeta::default() };
        let timeout = LISTING_TIMEOUT;
        McpTool { tier: SafetyTier::ReadOnly, meta, timeout, ..McpTool::new(self, decl, McpRequest::List) }
    }

    /// The tools of the last listing. Empty before the first listing.
    #[must_use]
    pub fn listed(&self) -> Vec<RemoteTool> {
        self.0.listed.lock().clone()
    }

    /// Turns a tool of the last listing into a tool for a registry. Its tier is side-effecting, or privileged
    /// if the server declares it destructive: a server can raise the tier of its tools, but not lower it.
    #[must_use]
    pub fn tool(&self, tool: &RemoteTool) -> McpTool {
        let tier = if tool.is_destructive { SafetyTier::Privileged } else { SafetyTier::SideEffecting };
        McpTool { tier, ..McpTool::new(self, tool.decl.clone(), McpRequest::Call(tool.decl.name.clone())) }
    }

    pub(crate) fn target(&self) -> &HttpTarget {
        &self.0.target
    }

    pub(crate) fn session(&self) -> &AsyncMutex<Option<McpSession>> {
        &self.0.session
    }

    /// Returns the id of a new request, unique across all sessions.
    pub(crate) fn next_id(&self) -> u64 {
        self.0.last_id.fetch_add(1, Ordering::Relaxed) + 1
    }

    pub(crate) fn set_listed(&self, tools: Vec<RemoteTool>) {
        *self.0.listed.lock() = tools;
    }
}

/// A valid tool, as its server describes it.
#[derive(Debug, Clone, PartialEq)]
pub struct RemoteTool {
    decl: FunctionDecl,
    is_destructive: bool,
}

/// The reason why a tool of a server cannot be used.
#[derive(Debug, Error)]
pub(crate) enum UnusableRemoteTool {
    #[error(transparent)]
    Name(#[from] InvalidToolName),
    #[error("its description has more than {MAX_DESCRIPTION_BYTES} bytes")]
    LongDescription,
    #[error("its description has the hidden character {}", .0.escape_unicode())]
    HiddenCharacter(char),
}

impl RemoteTool {
    /// Validates a tool of a listing.
    ///
    /// # Errors
    /// [`UnusableRemoteTool`]. The texts of a tool reach models, so a description with characters that people do
    /// not see is refused.
    pub(crate) fn read(tool: Tool) -> Result<Self, UnusableRemoteTool> {
        let name = ToolName::parse(&*tool.name)?;
        let description = tool.description.unwrap_or_default();
        if description.len() > MAX_DESCRIPTION_BYTES {
            return Err(UnusableRemoteTool::LongDescription);
        }
        let is_hidden = |character: char| is_deceptive(character) && !matches!(character, '\n' | '\t' | ' ');
        if let Some(hidden) = description.chars().find(|character| is_hidden(*character)) {
            return Err(UnusableRemoteTool::HiddenCharacter(hidden));
        }
        let schema = serde_json::Value::Object((*tool.input_schema).clone());
        Ok(Self {
            decl: FunctionDecl {
                name: name.to_string(),
                description: Some(description.into_owned()),
                parameters: JsonSchema::new(schema),
            },
            is_destructive: tool.annotations.and_then(|hints| hints.destructive_hint) == Some(true),
        })
    }

    /// The tool's name, which is the same at the server and here.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.decl.name
    }
}

/// The request that a call makes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum McpRequest {
    /// `tools/list`.
    List,
    /// `tools/call` of the tool with this name.
    Call(String),
}

/// A tool of a server.
#[derive(Debug, Clone)]
pub struct McpTool {
    /// The declaration for the model.
    pub decl: FunctionDecl,
    /// The tier that the policy judges it by.
    pub tier: SafetyTier,
    /// The time limit of a whole call, including the start of a session. Default: 30 s. The policy may shorten it.
    pub timeout: Duration,
    /// Hints for the registry.
    pub meta: ToolMeta,
    pub(crate) server: RemoteMcpServer,
    pub(crate) request: McpRequest,
}

impl McpTool {
    fn new(server: &RemoteMcpServer, decl: FunctionDecl, request: McpRequest) -> Self {
        Self {
            decl,
            tier: SafetyTier::SideEffecting,
            timeout: portcullis_types::DEFAULT_TIMEOUT,
            meta: ToolMeta::default(),
            server: server.clone(),
            request,
        }
    }

    /// Returns the descriptor that the policy judges the tool by.
    pub(crate) fn descriptor(&self) -> Result<ToolDescriptor, RegistryError> {
        let name = parse_name(&self.decl.name, &self.decl.name)?;
        Ok(ToolDescriptor {
            declared_tier: Some(self.tier),
            declared_timeout: Some(self.timeout),
            pin_status: PinStatus::Unpinned,
            ..ToolDescriptor::undeclared(name, ToolOrigin::Mcp)
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(tool: serde_json::Value) -> Result<RemoteTool, UnusableRemoteTool> {
        RemoteTool::read(serde_json::from_value(tool).expect("a tool"))
    }

    #[test]
    fn a_server_raises_the_tier_of_a_tool_and_does_not_lower_it() {
        let name = ToolName::parse("crm").expect("a name");
        let server = RemoteMcpServer::new(name, "https://mcp.example/").expect("an address");
        for (annotations, tier) in [
            (json!({}), SafetyTier::SideEffecting),
            (json!({"readOnlyHint": true, "destructiveHint": false}), SafetyTier::SideEffecting),
            (json!({"readOnlyHint": true, "destructiveHint": true}), SafetyTier::Privileged),
        ] {
            let tool = json!({"name": "find", "inputSchema": {"type": "object"}, "annotations": annotations});
            assert_eq!(server.tool(&read(tool).expect("read")).tier, tier, "{annotations}");
        }
        assert!(server.listing().meta.hidden);
    }

    #[test]
    fn hidden_characters_and_invalid_names_are_refused() {
        let described = |text: &str| {
            read(json!({"name": "find", "description": text, "inputSchema": {"type": "object"}}))
        };
        described("Finds a customer.\n\n- by name").expect("a plain text");
        for text in ["Finds.\u{200b}Send all.", "\u{202e}sdniF", "a\u{7}", "tags \u{e0041}"] {
            assert!(described(text).expect_err(text).to_string().contains("\\u{"), "{text}");
        }
        described(&"x".repeat(MAX_DESCRIPTION_BYTES + 1)).expect_err("too long");
        for name in ["", "a b", "fi\u{430}nd", "../x"] {
            read(json!({"name": name, "inputSchema": {"type": "object"}})).expect_err(name);
        }
    }
}
