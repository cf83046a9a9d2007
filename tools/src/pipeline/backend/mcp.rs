//! The backend of the tools of MCP servers. A call makes a few requests, on the confined threads of the
//! host's HTTP client. The first one starts a session with the server (Model Context Protocol 2025-11-25,
//! "Streamable HTTP").

use std::{sync::Arc, time::Instant};

use portcullis_egress::{HeaderValue, Method, Request, Response, StatusCode, Url};
use portcullis_policy::RequestedSubject;
use portcullis_types::{ToolArgs, ToolError, ToolErrorCode, ToolOutput, async_trait};
use rmcp::model::{CallToolResult, InitializeResult, ListToolsResult};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::{
    AttemptOutcome, Backend, CallAttempt,
    egress::{error_of, headers, judge_of_configured, send_labelled},
    http::NO_CLIENT,
    mcp_response::{output_of_call, read_result},
    time_limit_error,
};
use crate::{
    audit::Confinement,
    http_tool::HttpTarget,
    mcp_tool::{MAX_LISTED_PAGES, MAX_REMOTE_TOOLS, McpRequest, McpSession, RemoteMcpServer, RemoteTool},
    pipeline::{Host, PendingRecord, admit::refuse},
    web::{self, GrantJudge, HttpClientHandle},
};

/// The configuration key of the server's URL. Approval questions and audit rows show it.
pub(crate) const SERVER_URL: &str = "mcp.servers.url";

/// The protocol revision that the client requests.
const VERSION: &str = "2025-11-25";

/// The revisions that a server may choose. The messages used here are the same in all of them.
const VERSIONS: [&str; 3] = [VERSION, "2025-06-18", "2025-03-26"];

/// The header with the session's id.
const SESSION_ID: &str = "mcp-session-id";

/// The header with the protocol revision.
const PROTOCOL_VERSION: &str = "mcp-protocol-version";

/// A response is one message, or a stream of messages.
const ACCEPT: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A tool of a server, or the listing of its tools.
#[derive(Debug)]
pub(crate) struct McpBackend {
    pub(crate) server: RemoteMcpServer,
    pub(crate) request: McpRequest,
}

#[async_trait]
impl Backend for McpBackend {
    fn confinement(&self) -> Confinement {
        Confinement::Egress
    }

    fn unavailable_reason(&self, host: &Host) -> Option<&str> {
        host.http_client.is_none().then_some(NO_CLIENT)
    }

    fn http_target(&self) -> Option<&HttpTarget> {
        Some(self.server.target())
    }

    /// The URL of the server. The arguments go in the body of a request.
    fn configured_subject(&self, _args: &ToolArgs) -> Result<Option<RequestedSubject>, ToolError> {
        let url = self.server.target().url().to_owned();
        Ok(Some(RequestedSubject::Url { argument: SERVER_URL.to_owned(), url }))
    }

    async fn attempt(
        &self,
        attempt: CallAttempt<'_>,
        pending_record: &mut PendingRecord,
    ) -> Result<AttemptOutcome, ToolError> {
        let CallAttempt { checked, deadline, time_limit, host, .. } = attempt;
        let Some(http_client) = &host.http_client else {
            return Err(ToolError::unavailable(NO_CLIENT).with_code(ToolErrorCode::NoHttpClient));
        };
        let judge = judge_of_configured(&attempt);
        let target = self.server.target();
        let judged = judge
            .judge(target.method().as_str(), target.url())
            .map_err(|denial| refuse(denial, pending_record))?;
        let url = judged.url().clone();
        let mut exchange = Exchange {
            attempt: &attempt,
            http_client,
            judge: &judge,
            url,
            server: &self.server,
            pending_record,
        };
        let exchange = async {
            match &self.request {
                McpRequest::List => exchange.list().await,
                McpRequest::Call(name) => exchange.call(name, &checked.args).await,
            }
        };
        // One timeout for the whole call, which can make several requests.
        let time_left = deadline.saturating_duration_since(Instant::now());
        let result = tokio::time::timeout(time_left, exchange).await;
        let result = result.unwrap_or_else(|_elapsed| Err(time_limit_error(time_limit)));
        Ok(AttemptOutcome::without_retry(result))
    }
}

/// The requests of one call.
struct Exchange<'a, 'c> {
    attempt: &'a CallAttempt<'c>,
    http_client: &'a HttpClientHandle,
    judge: &'a Arc<GrantJudge>,
    url: Url,
    server: &'a RemoteMcpServer,
    pending_record: &'a mut PendingRecord,
}

impl Exchange<'_, '_> {
    /// Lists all tools of the server, and keeps the valid ones.
    async fn list(&mut self) -> Result<ToolOutput, ToolError> {
        let (mut tools, mut refused, mut cursor) = (Vec::new(), Vec::new(), None);
        for _ in 0..MAX_LISTED_PAGES {
            let params = cursor.map_or_else(|| json!({}), |cursor: String| json!({ "cursor": cursor }));
            let page: ListToolsResult = self.ask("tools/list", params).await?;
            for tool in page.tools {
                let name = tool.name.clone();
                match RemoteTool::read(tool) {
                    Ok(tool) => tools.push(tool),
                    Err(error) => refused.push(json!({ "name": name, "reason": error.to_string() })),
                }
            }
            cursor = page.next_cursor;
            if cursor.is_none() || tools.len() + refused.len() >= MAX_REMOTE_TOOLS {
                break;
            }
        }
        tools.truncate(MAX_REMOTE_TOOLS);
        refused.truncate(MAX_REMOTE_TOOLS);
        let names: Vec<&str> = tools.iter().map(RemoteTool::name).collect();
        let output = ToolOutput::structured(json!({ "tools": names, "refused": refused }));
        self.server.set_listed(tools);
        Ok(output)
    }

    async fn call(&mut self, name: &str, args: &ToolArgs) -> Result<ToolOutput, ToolError> {
        let params = json!({ "name": name, "arguments": args.value() });
        let result: CallToolResult = self.ask("tools/call", params).await?;
        output_of_call(result)
    }

    /// Sends a request in the session, and reads its result.
    async fn ask<T: DeserializeOwned>(&mut self, method: &str, params: Value) -> Result<T, ToolError> {
        let session = self.session().await?;
        let id = self.server.next_id();
        let message = json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params });
        let mut response = self.post(&message, Some(&session)).await?;
        if response.status == StatusCode::NOT_FOUND && session.id.is_some() {
            // The session has expired, and the server has not processed the request ("Session Management").
            {
                let mut open = self.server.session().lock().await;
                if open.as_ref() == Some(&session) {
                    *open = None;
                }
            }
            let session = self.session().await?;
            response = self.post(&message, Some(&session)).await?;
        }
        read_result(&response, id).await
    }

    /// Returns the open session, or starts one.
    async fn session(&mut self) -> Result<McpSession, ToolError> {
        let server = self.server;
        let mut open = server.session().lock().await;
        if let Some(session) = &*open {
            return Ok(session.clone());
        }
        let id = server.next_id();
        let params = json!({
            "protocolVersion": VERSION,
            "capabilities": {},
            "clientInfo": { "name": "portcullis", "version": env!("CARGO_PKG_VERSION") },
        });
        let begin = json!({ "jsonrpc": "2.0", "id": id, "method": "initialize", "params": params });
        let response = self.post(&begin, None).await?;
        let result: InitializeResult = read_result(&response, id).await?;
        let version = result.protocol_version.as_str();
        let Some(version) = VERSIONS.into_iter().find(|known| *known == version) else {
            let version: String = version.chars().take(32).collect();
            let message = format!(
                "the server speaks the revision `{}` of the protocol; known are {}",
                portcullis_types::escape_for_display(&version),
                VERSIONS.join(", ")
            );
            return Err(ToolError::unavailable(message).with_code(ToolErrorCode::McpVersion));
        };
        let session = McpSession {
            id: response.headers.get(SESSION_ID).cloned(),
            version: HeaderValue::from_static(version),
        };
        let begun = json!({ "jsonrpc": "2.0", "method": "notifications/initialized" });
        let response = self.post(&begun, Some(&session)).await?;
        if let Some(error) = web::refused_by_status("the server", &response, "") {
            return Err(error);
        }
        *open = Some(session.clone());
        Ok(session)
    }

    /// Sends one message.
    async fn post(&mut self, message: &Value, session: Option<&McpSession>) -> Result<Response, ToolError> {
        let mut headers = headers(ACCEPT, true);
        if let Some(session) = session {
            headers.insert(PROTOCOL_VERSION, session.version.clone());
            if let Some(id) = &session.id {
                headers.insert(SESSION_ID, id.clone());
            }
        }
        let request = Request {
            method: Method::POST,
            headers,
            body: message.to_string().into(),
            ..Request::get(self.url.clone())
        };
        let sent =
            send_labelled(self.attempt, self.http_client, self.judge, request, self.pending_record).await?;
        sent.map_err(|failure| error_of(failure, self.pending_record))
    }
}
