//! `tools/call`: runs one call of a client through the pipeline, and sends its reports.

use std::sync::Arc;

use portcullis_tools::{Caller, ToolResult, approval::Approver, new_call};
use portcullis_types::{ToolError, ToolErrorCode, ToolEvent, display::text, escape_for_display};
use rmcp::{
    RoleServer,
    model::{CallToolRequestParams, CallToolResult, ErrorCode, ErrorData},
    service::RequestContext,
};
use serde_json::json;
use tokio::sync::mpsc;

use super::{
    approver::ClientApprover, client::CallReport, log::bounded, reports::Reports, result,
    session::ClientSession, wire::RawArguments,
};

/// The error code for too many concurrent calls. The number is from the range that JSON-RPC reserves for
/// servers.
const BUSY: ErrorCode = ErrorCode(-32000);

/// The maximum length of a client's name in an agent's id, in bytes.
const MAX_CLIENT_NAME_BYTES: usize = 64;

/// Runs one call.
///
/// # Errors
/// Protocol errors, not tool errors: an unknown tool, or too many concurrent calls.
///
/// # Cancellation
/// Dropping the future cancels the call. Its audit row is still written.
pub(super) async fn run(
    session: &ClientSession,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let limits = session.server().limits();
    let offered = session.server().offered();
    let arguments = arguments(&context, &request);
    let call = new_call(request.name.into_owned(), arguments);
    let Some(_session_slot) = session.presence().session_calls.try_begin(limits.max_calls) else {
        let message = format!("more than {} concurrent calls: wait for some of them", limits.max_calls);
        let caller = session.caller(agent_id(&context));
        let refused = ToolError::resource_limit(message.clone()).with_code(ToolErrorCode::TooManyCalls);
        // Record the refusal for the audit log only: the client gets a protocol error.
        let _recorded = offered.registry.refuse(call, &caller, refused);
        return Err(ErrorData::new(BUSY, message, None));
    };
    // A stopping server waits for the calls that hold such a guard.
    let _server_slot = session.server().server_calls().begin();
    let is_known = offered.registry.get(&call.tool).is_some();

    let (sender, receiver) = mpsc::channel(limits.max_unsent_reports);
    let _client = session.server().clients().register(&call.id, sender.clone());
    let caller = caller(session, &context, sender);
    let reports = Reports::new(&context, session.threshold(), &call.tool);
    let cancel = caller.cancel.clone();
    let client_gone = session.presence().disconnected.clone();

    let result = {
        let work = Box::pin(async { offered.registry.execute_with_policy(call, &caller).await });
        let cancel_when_gone = async {
            client_gone.cancelled().await;
            cancel.cancel();
            // Wait forever: the cancelled call still returns a result, which ends the select.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            // `biased`: a call that has ended is not cancelled, even if its client leaves at the same moment.
            biased;
            result = reports.run_with_reports(receiver, work) => result,
            () = cancel_when_gone => unreachable!("it never completes"),
        }
    };
    if offered.registry.get(&result.tool).is_some_and(|tool| tool.shell_backend().is_some()) {
        // The call may have found that the shell cannot run here. The tool is then removed from the list.
        session.server().recheck_shell(&offered);
    }
    let result = add_approval_hint(result);
    if !is_known {
        return Err(ErrorData::invalid_params(unknown_tool(&result), None));
    }
    Ok(result::call_result(&result, offered.registry.get(&result.tool).as_deref()))
}

/// Returns the arguments as the client wrote them.
fn arguments(context: &RequestContext<RoleServer>, request: &CallToolRequestParams) -> String {
    let http_arguments =
        || context.extensions.get::<::http::request::Parts>()?.extensions.get::<RawArguments>();
    match context.extensions.get::<RawArguments>().or_else(http_arguments) {
        Some(RawArguments(text)) => text.clone(),
        // The transport kept no raw text, so encode the decoded arguments.
        None => request.arguments.as_ref().map(|map| json!(map).to_string()).unwrap_or_default(),
    }
}

fn caller(
    session: &ClientSession,
    context: &RequestContext<RoleServer>,
    reports: mpsc::Sender<CallReport>,
) -> Caller {
    let mut caller = session.caller(agent_id(context));
    caller.cancel = context.ct.child_token();
    caller.approver = approver(session, context);
    caller.external_calls = session.server().kept_external_calls();
    let (updates, heartbeats) = (reports.clone(), reports.clone());
    // Use `try_send`: reports only inform, so a slow reader may miss some. The result always arrives.
    caller.on_progress = Some(Arc::new(move |text| {
        let _ = reports.try_send(progress(text));
    }));
    caller.on_update = Some(Arc::new(move |partial| {
        let _ = updates.try_send(progress(text::of_content(&partial.content)));
    }));
    if context.meta.get_progress_token().is_some() {
        caller.on_event = Some(Arc::new(move |event| {
            if let ToolEvent::Heartbeat { .. } = event {
                let _ = heartbeats.try_send(CallReport::Alive);
            }
        }));
    }
    caller
}

fn progress(text: String) -> CallReport {
    CallReport::Progress { progress: None, total: None, message: Some(bounded(text)) }
}

/// Returns the approver of a call: the configured one, or else the client if it supports elicitation.
fn approver(session: &ClientSession, context: &RequestContext<RoleServer>) -> Option<Arc<dyn Approver>> {
    if let Some(approver) = session.server().configured_approver() {
        return Some(approver);
    }
    let approvals = Arc::clone(session.approvals());
    ClientApprover::from_context(context, approvals).map(|approver| Arc::new(approver) as Arc<dyn Approver>)
}

/// Returns the agent id of a client: the prefix `mcp`, which no other front end uses, and the client's name,
/// escaped for display.
fn agent_id(context: &RequestContext<RoleServer>) -> String {
    let name = context.client_info().map(|client| client.name).unwrap_or_default();
    agent_id_of_client(&name)
}

fn agent_id_of_client(client: &str) -> String {
    let mut name = escape_for_display(client).to_string();
    name.truncate(name.floor_char_boundary(MAX_CLIENT_NAME_BYTES));
    if name.is_empty() { "mcp".to_owned() } else { format!("mcp:{name}") }
}

/// Adds a hint on how to approve the call, if it had no approver.
fn add_approval_hint(result: ToolResult) -> ToolResult {
    portcullis_tools::with_approval_hint(
        result,
        "this client does not support questions (elicitation): the operator can allow the tool in the policy, or start the server with --approve",
    )
}

fn unknown_tool(result: &ToolResult) -> String {
    match result.outcome.error() {
        Some(error) => error.for_model().replacen("Tool execution failed: ", "", 1),
        None => "there is no such tool".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_its_clients_name_bounded_and_escaped() {
        assert_eq!(agent_id_of_client("claude-code"), "mcp:claude-code");
        assert_eq!(agent_id_of_client(""), "mcp");
        assert_eq!(agent_id_of_client("a\u{1b}[2J\u{202e}"), "mcp:a\\u{1b}[2J\\u{202e}");
        assert_eq!(agent_id_of_client(&"\u{e4}".repeat(1000)).len(), "mcp:".len() + MAX_CLIENT_NAME_BYTES);
    }
}
