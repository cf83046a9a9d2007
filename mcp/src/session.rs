//! [`ClientSession`]: the requests, approvals and calls of one client.

use std::{
    borrow::Cow,
    sync::{Arc, OnceLock},
};

use parking_lot::Mutex;
use portcullis_tools::{Caller, approval::SessionApprovals};
use portcullis_types::{CancellationToken, random_hex};
use rmcp::{
    RoleServer, ServerHandler,
    model::{
        CallToolRequestParams, CallToolResponse, CustomRequest, CustomResult, ErrorCode, ErrorData,
        Implementation, ListToolsResult, PaginatedRequestParams, ProtocolVersion, ServerCapabilities,
        ServerConfig, SetLevelRequestParams, Tool,
    },
    service::{NotificationContext, Peer, RequestContext},
};

use super::{
    McpError, McpServer, call,
    log::{self, LogThreshold},
    server::CallsInProgress,
    task::{self, AbortOnDrop},
};

/// The instructions that a client gets with the answer to `initialize`.
const INSTRUCTIONS: &str = "Tools run confined, under a policy. The policy decides which of the directories /shared, /tmp \
                            and /vault each tool can see; relative paths start at /shared. A refusal says what \
                            was refused and what would be allowed.";

/// The served methods that have parameters.
const SERVED: [&str; 4] = ["initialize", "tools/list", "tools/call", "logging/setLevel"];

/// One client's session.
#[derive(Debug)]
pub(super) struct ClientSession {
    server: McpServer,
    run_id: String,
    approvals: Arc<SessionApprovals>,
    threshold: Mutex<LogThreshold>,
    presence: ClientPresence,
    /// The task that notifies the client when the tools change. It ends with the session.
    change_notifier: OnceLock<AbortOnDrop>,
}

/// Whether a client is present, and how many of its calls are running. The client's transport and session
/// share this value.
#[derive(Debug, Clone, Default)]
pub(super) struct ClientPresence {
    /// Cancelled when the client is gone for good, or when the server stops. This cancels the calls.
    pub(super) disconnected: CancellationToken,
    /// The calls of the session.
    pub(super) session_calls: CallsInProgress,
}

impl ClientSession {
    pub(super) fn new(server: McpServer, presence: ClientPresence) -> Result<Self, McpError> {
        let random = random_hex::<16>().map_err(|source| McpError::Random { source })?;
        Ok(Self {
            server,
            run_id: format!("mcp_{random}"),
            approvals: Arc::default(),
            threshold: Mutex::default(),
            presence,
            change_notifier: OnceLock::new(),
        })
    }

    pub(super) fn server(&self) -> &McpServer {
        &self.server
    }

    /// Returns the caller of the session's calls. Only the run id tells clients apart, because a client
    /// chooses its name.
    pub(super) fn caller(&self, agent_id: String) -> Caller {
        Caller::named_by_itself(agent_id, self.run_id.as_str())
    }

    pub(super) fn approvals(&self) -> &Arc<SessionApprovals> {
        &self.approvals
    }

    pub(super) fn presence(&self) -> &ClientPresence {
        &self.presence
    }

    /// Returns the lowest level of log messages that the client wants.
    pub(super) fn threshold(&self) -> LogThreshold {
        *self.threshold.lock()
    }

    /// Starts the task that notifies the client of changed tools, unless the task is running.
    fn announce_changes(&self, peer: Peer<RoleServer>) {
        let server = self.server.clone();
        let mut changes = server.changes();
        self.change_notifier.get_or_init(|| {
            task::spawn(async move {
                let mut previous = Arc::clone(&changes.borrow_and_update());
                loop {
                    let mut registry_changes = previous.changes.clone();
                    tokio::select! {
                        // `biased`: a change of the tools completes both waits, and the first branch handles
                        // it once.
                        biased;
                        changed = changes.changed() => if changed.is_err() { return },
                        () = registry_changes.changed() => {
                            // List the tools again, which completes the wait of the first branch.
                            server.offered();
                            continue;
                        }
                    }
                    let current = Arc::clone(&changes.borrow_and_update());
                    if current.tools != previous.tools && peer.notify_tool_list_changed().await.is_err() {
                        return;
                    }
                    previous = current;
                }
            })
        });
    }
}

impl Drop for ClientSession {
    fn drop(&mut self) {
        // Every call holds its session, so all calls have ended. A replaced registry has already dropped its
        // state of the run.
        self.server.offered().registry.end_run(&self.caller(String::new()));
    }
}

impl ServerHandler for ClientSession {
    fn get_info(&self) -> ServerConfig {
        let capabilities =
            ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_logging().build();
        let implementation =
            Implementation::new("portcullis", env!("CARGO_PKG_VERSION")).with_title("Portcullis");
        let mut info = ServerConfig::new(capabilities);
        info.protocol_version = newest_version();
        info.server_info = implementation;
        info.instructions = Some(INSTRUCTIONS.to_owned());
        info
    }

    /// Returns every revision that has sessions, because approvals are asked for in a session.
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::known_up_to(&newest_version()))
    }

    async fn on_initialized(&self, context: NotificationContext<RoleServer>) {
        self.announce_changes(context.peer);
    }

    async fn set_level(
        &self,
        request: SetLevelRequestParams,
        _: RequestContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        *self.threshold.lock() = LogThreshold(request.level.into());
        Ok(())
    }

    async fn list_tools(
        &self,
        request: Option<PaginatedRequestParams>,
        _: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        if request.is_some_and(|request| request.cursor.is_some()) {
            return Err(ErrorData::invalid_params("no such cursor: all tools are on one page", None));
        }
        Ok(ListToolsResult::with_all_items(self.server.offered().tools.clone()))
    }

    /// Refuses other requests: an unknown method, or a served method with invalid parameters.
    async fn on_custom_request(
        &self,
        request: CustomRequest,
        _: RequestContext<RoleServer>,
    ) -> Result<CustomResult, ErrorData> {
        let method = request.method;
        if SERVED.contains(&method.as_str()) {
            let message = format!("the parameters are not those of `{method}`");
            return Err(ErrorData::invalid_params(message, None));
        }
        Err(ErrorData::new(ErrorCode::METHOD_NOT_FOUND, log::bounded(method), None))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        self.server.offered().tools.iter().find(|tool| tool.name == name).cloned()
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        Box::pin(call::run(self, request, context)).await.map(CallToolResponse::Complete)
    }
}

/// Returns the newest revision with sessions.
fn newest_version() -> ProtocolVersion {
    ProtocolVersion::V_2025_11_25
}
