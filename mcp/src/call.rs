//! `tools/call`: runs one call of a client through the pipeline, with its reports.

use std::sync::Arc;

use portcullis_tools::{Caller, ToolResult, approval::Approver, new_call};
use portcullis_types::{ToolError, ToolEvent, display::text, escape_for_display};
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

/// Error for too many concurrent calls; from the range that JSON-RPC reserves for servers.
const BUSY: ErrorCode = ErrorCode(-32000);

/// Limit of a client's name in an agent's id, in bytes.
const MAX_CLIENT_NAME_BYTES: usize = 64;

/// Runs one call.
///
/// # Errors
/// Protocol errors, not tool errors: an unknown tool, or too many calls at once.
///
/// # Cancellation
/// Dropping the future cancels the call; its audit row is still written.
pub(super) async fn run(
    session: &ClientSession,
    request: CallToolRequestParams,
    context: RequestContext<RoleServer>,
) -> Result<CallToolResult, ErrorData> {
    let limits = session.server().limits();
    let offered = session.server().offered();
    let arguments = arguments(&context, &request);
    let call = new_call(request.name.into_owned(), arguments);
    let Some(_running) = session.presence().running.begin_below(limits.calls) else {
        let message = format!("more than {} calls at once: wait for some of them", limits.calls);
        let caller = session.caller(agent_id(&context));
        let refused = ToolError::resource_limit(message.clone()).with_code("too_many_calls");
        // For the audit row alone: the client gets an error of the protocol.
        let _recorded = offered.registry.refuse(call, &caller, refused);
        return Err(ErrorData::new(BUSY, message, None));
    };
    let _counted = session.server().running().begin();
    let known = offered.registry.get(&call.tool).is_some();

    let (sender, receiver) = mpsc::channel(limits.reports);
    let _client = session.server().clients().register(&call.id, sender.clone());
    let caller = caller(session, &context, sender);
    let reports = Reports::new(&context, session.threshold(), &call.tool);
    let cancel = caller.cancel.clone();
    let gone = session.presence().gone.clone();

    let result = {
        let work = Box::pin(async { offered.registry.execute_with_policy(call, &caller).await });
        let leaving = async {
            gone.cancelled().await;
            cancel.cancel();
            // Never the first to end: the cancelled call still gives a result.
            std::future::pending::<()>().await;
        };
        tokio::select! {
            biased;
            result = reports.alongside(receiver, work) => result,
            () = leaving => unreachable!("it waits for ever"),
        }
    };
    if offered.registry.get(&result.tool).is_some_and(|tool| tool.shell_backend().is_some()) {
        // The command may have found that the shell cannot run.
        session.server().recheck_shell(&offered);
    }
    let result = hinted(result);
    if !known {
        return Err(ErrorData::invalid_params(unknown_tool(&result), None));
    }
    Ok(result::of(&result, offered.registry.get(&result.tool).as_deref()))
}

/// The arguments as the client wrote them.
fn arguments(context: &RequestContext<RoleServer>, request: &CallToolRequestParams) -> String {
    let of_http = || context.extensions.get::<::http::request::Parts>()?.extensions.get::<RawArguments>();
    match context.extensions.get::<RawArguments>().or_else(of_http) {
        Some(RawArguments(text)) => text.clone(),
        // A transport that keeps no raw text: the decoded arguments.
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
    let (updates, heartbeats) = (reports.clone(), reports.clone());
    // `try_send`: a slow reader misses some reports. They only inform; the result counts.
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

/// The approver of a call: the operator's if there is one, else the client if it supports elicitation.
fn approver(session: &ClientSession, context: &RequestContext<RoleServer>) -> Option<Arc<dyn Approver>> {
    if let Some(approver) = session.server().own_approver() {
        return Some(approver);
    }
    let approvals = Arc::clone(session.approvals());
    ClientApprover::of(context, approvals).map(|approver| Arc::new(approver) as Arc<dyn Approver>)
}

/// The agent id of a client: its name, escaped for display, behind the prefix `mcp`, which no other front end
/// uses.
fn agent_id(context: &RequestContext<RoleServer>) -> String {
    let name = context.client_info().map(|client| client.name).unwrap_or_default();
    agent_of(&name)
}

fn agent_of(client: &str) -> String {
    let mut name = escape_for_display(client).to_string();
    name.truncate(name.floor_char_boundary(MAX_CLIENT_NAME_BYTES));
    if name.is_empty() { "mcp".to_owned() } else { format!("mcp:{name}") }
}

/// Adds a hint on how to approve a call if there was no approver for it.
fn hinted(result: ToolResult) -> ToolResult {
    portcullis_tools::hinted(
        result,
        "this client takes no questions (elicitation): the operator can allow the tool in the policy, or start the server with --approve",
    )
}

fn unknown_tool(result: &ToolResult) -> String {
    match &result.outcome {
        Err(error) => error.for_model().replacen("Tool execution failed: ", "", 1),
        Ok(_) => "there is no such tool".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agent_is_its_clients_name_bounded_and_escaped() {
        assert_eq!(agent_of("claude-code"), "mcp:claude-code");
        assert_eq!(agent_of(""), "mcp");
        assert_eq!(agent_of("a\u{1b}[2J\u{202e}"), "mcp:a\\u{1b}[2J\\u{202e}");
        assert_eq!(agent_of(&"\u{e4}".repeat(1000)).len(), "mcp:".len() + MAX_CLIENT_NAME_BYTES);
    }
}
