//! [`Hsafa`]: the event format of specification 003.

use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_types::{ToolErrorKind, ToolEvent, ToolResult};
use serde_json::{Value, json};

use super::{EventFormat, calls::OpenCalls, ending, partial::partial};
use crate::everruns::ToolExecutionResult;

/// Limit of a call's buffered arguments, in bytes. Beyond it pieces are still passed on, without
/// `partialArgs`; all arguments follow at the end.
pub const MAX_PARTIAL_ARGUMENT_BYTES: usize = 64 * 1024;

/// Event format of specification 003 ("Streaming Events", "Visible Tool Results in Spaces"). Names and fields
/// that the specification leaves open follow its project: flat objects in camel case, each with `type`,
/// `runId` and `agentEntityId`. Events of a call also have `streamId` (the call's id) and `toolName`.
///
/// | event | further fields | source |
/// |---|---|---|
/// | `run.started` | | [`AgentEvent::AgentStart`] |
/// | `tool.started` | | the first of [`ToolEvent::ArgumentsDelta`] and [`ToolEvent::Requested`] |
/// | `tool.streaming` | `delta`, sometimes `partialArgs` | [`ToolEvent::ArgumentsDelta`] |
/// | `tool.streaming` | `partialArgs`: all arguments | [`ToolEvent::Requested`] |
/// | `run.waiting_tool` | `status` (`requires_action`), `reason` (`approval` or `result`) | [`ToolEvent::ApprovalRequested`], [`ToolEvent::Pending`] |
/// | `tool.done` | `result` | [`AgentEvent::ToolEnd`] with a result |
/// | `tool.error` | `error`, `code` (the error's kind) | [`AgentEvent::ToolEnd`] with an error; [`AgentEvent::TurnEnd`] for a call that was cut off |
/// | `run.completed` | `text` | [`AgentEnd::Answer`] |
/// | `run.cancelled` | | [`AgentEnd::Cancelled`] |
/// | `run.failed` | `error`, `code` | each other [`AgentEnd`] |
///
/// `partialArgs` is sent when the text has grown by an eighth, so that long arguments are not repeated too
/// often, and while the text has at most [`MAX_PARTIAL_ARGUMENT_BYTES`]. A call whose result comes later,
/// from elsewhere, stays in `requires_action`: its `{"status": "pending"}` gives no `tool.done`. `error` and
/// `result` are the model's view of the result; an internal error is one fixed sentence.
///
/// Omitted, because in this system the model's text is private and people see only its calls:
/// [`AgentEvent::TurnStart`], [`AgentEvent::TextDelta`], [`AgentEvent::ThinkingDelta`],
/// [`AgentEvent::MessageEnd`], a turn's tokens. Omitted, because the format has no event for them:
/// [`AgentEvent::Steered`], [`ToolEvent::ApprovalResolved`], [`ToolEvent::Started`],
/// [`ToolEvent::Heartbeat`], [`ToolEvent::Progress`], [`ToolEvent::Update`]. The sender of the stream adds
/// its `id`, `seq` and `ts`.
#[derive(Debug, Default)]
pub struct Hsafa {
    run_id: String,
    agent_id: String,
    calls: OpenCalls<CallProgress>,
}

/// State of a call in progress.
#[derive(Debug, Default)]
struct CallProgress {
    tool: String,
    /// The arguments' text so far; empty when they are complete or too long.
    arguments: String,
    /// Whether the call was requested. An [`AgentEvent::ToolEnd`] will follow then.
    is_requested: bool,
    /// Whether `arguments` holds all text that has come.
    is_all: bool,
    /// The length at which `partialArgs` is sent again.
    due_at: usize,
    /// Whether the result comes from elsewhere.
    is_pending: bool,
}

impl EventFormat for Hsafa {
    fn values(&mut self, event: &AgentEvent) -> Vec<Value> {
        match event {
            AgentEvent::AgentStart { agent_id, run_id } => {
                self.agent_id.clone_from(agent_id);
                self.run_id.clone_from(run_id);
                vec![self.of_run("run.started")]
            }
            AgentEvent::Tool(event) => self.tool(event),
            AgentEvent::ToolEnd { result } => self.tool_end(result).into_iter().collect(),
            AgentEvent::AgentEnd { end } => {
                let mut values = self.cut_off();
                values.push(self.end(end));
                values
            }
            AgentEvent::TurnEnd { .. } => self.cut_off(),
            AgentEvent::TurnStart { .. }
            | AgentEvent::TextDelta { .. }
            | AgentEvent::ThinkingDelta { .. }
            | AgentEvent::MessageEnd { .. }
            | AgentEvent::Steered { .. } => Vec::new(),
        }
    }
}

impl Hsafa {
    fn tool(&mut self, event: &ToolEvent) -> Vec<Value> {
        match event {
            ToolEvent::ArgumentsDelta { call_id, tool, delta } => self.arriving(call_id, tool, delta),
            ToolEvent::Requested { call_id, tool, arguments } => self.requested(call_id, tool, arguments),
            ToolEvent::ApprovalRequested { call_id } => vec![self.waiting(call_id, "approval")],
            ToolEvent::Pending { call_id } => {
                if let Some(call) = self.calls.open(call_id, CallProgress::default) {
                    call.is_pending = true;
                }
                vec![self.waiting(call_id, "result")]
            }
            ToolEvent::ApprovalResolved { .. }
            | ToolEvent::Started { .. }
            | ToolEvent::Heartbeat { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Update { .. }
            | ToolEvent::Finished { .. } => Vec::new(),
        }
    }

    fn arriving(&mut self, call_id: &str, tool: &str, delta: &str) -> Vec<Value> {
        let is_new = !self.calls.has(call_id);
        let new = || CallProgress { tool: tool.to_owned(), is_all: true, ..CallProgress::default() };
        let Some(call) = self.calls.open(call_id, new) else {
            // Too many calls to track: the call is reported with `Requested`.
            return Vec::new();
        };
        let shown = call.grow(delta);
        let mut values = Vec::new();
        if is_new {
            values.push(self.of_call("tool.started", call_id, tool));
        }
        if !delta.is_empty() {
            let mut value = self.of_call("tool.streaming", call_id, tool);
            value["delta"] = delta.into();
            if let Some(shown) = shown {
                value["partialArgs"] = shown;
            }
            values.push(value);
        }
        values
    }

    fn requested(&mut self, call_id: &str, tool: &str, arguments: &str) -> Vec<Value> {
        let is_new = !self.calls.has(call_id);
        if let Some(call) = self.calls.open(call_id, CallProgress::default) {
            // The arguments are complete: the buffered text goes.
            *call = CallProgress { tool: tool.to_owned(), is_requested: true, ..CallProgress::default() };
        }
        let mut values = Vec::new();
        if is_new {
            values.push(self.of_call("tool.started", call_id, tool));
        }
        let mut value = self.of_call("tool.streaming", call_id, tool);
        value["partialArgs"] = match arguments.trim() {
            "" => json!({}),
            // Text that is not JSON is shown as the model wrote it.
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        };
        values.push(value);
        values
    }

    fn waiting(&self, call_id: &str, reason: &str) -> Value {
        let tool = self.calls.get(call_id).map_or("", |call| &call.tool);
        let mut value = self.of_call("run.waiting_tool", call_id, tool);
        value["status"] = "requires_action".into();
        value["reason"] = reason.into();
        value
    }

    fn tool_end(&mut self, result: &ToolResult) -> Option<Value> {
        let call = self.calls.close(&result.call_id);
        let shown = ToolExecutionResult::from(result.clone()).model_value();
        let is_pending = call.is_some_and(|call| call.is_pending);
        match result.outcome.as_ref().map_err(|error| error.kind()) {
            // A result that came in time is shown.
            Ok(_) if is_pending && shown["status"] == "pending" => None,
            Ok(_) => {
                let mut value = self.of_call("tool.done", &result.call_id, &result.tool);
                value["result"] = shown;
                Some(value)
            }
            Err(kind) => {
                let mut value = self.of_call("tool.error", &result.call_id, &result.tool);
                value["error"] = shown["error"].clone();
                value["code"] = ToolErrorKind::as_str(kind).into();
                Some(value)
            }
        }
    }

    /// Reports the calls whose arguments were never completed; none of them will run.
    fn cut_off(&mut self) -> Vec<Value> {
        let calls = self.calls.close_where(|call| !call.is_requested);
        let errors = calls.into_iter().map(|(id, call)| {
            let mut value = self.of_call("tool.error", &id, &call.tool);
            value["error"] = "the call was cut off".into();
            value["code"] = ToolErrorKind::Failed.as_str().into();
            value
        });
        errors.collect()
    }

    fn end(&self, end: &AgentEnd) -> Value {
        let Some(failure) = ending::failure(end) else {
            let mut value = self.of_run("run.completed");
            value["text"] = ending::answer(end).into();
            return value;
        };
        if *end == AgentEnd::Cancelled {
            return self.of_run("run.cancelled");
        }
        let mut value = self.of_run("run.failed");
        value["error"] = failure.message.into();
        value["code"] = failure.code.into();
        value
    }

    fn of_run(&self, kind: &str) -> Value {
        json!({"type": kind, "runId": self.run_id, "agentEntityId": self.agent_id})
    }

    fn of_call(&self, kind: &str, call_id: &str, tool: &str) -> Value {
        let mut value = self.of_run(kind);
        value["streamId"] = call_id.into();
        value["toolName"] = tool.into();
        value
    }
}

impl CallProgress {
    /// Adds to the arguments, and returns `partialArgs` if it is due.
    fn grow(&mut self, delta: &str) -> Option<Value> {
        self.is_all &= self.arguments.len() + delta.len() <= MAX_PARTIAL_ARGUMENT_BYTES;
        if !self.is_all {
            // Frees the buffer; `is_all` stays false, so nothing is buffered again.
            self.arguments = String::new();
            return None;
        }
        self.arguments.push_str(delta);
        if self.arguments.len() < self.due_at {
            return None;
        }
        self.due_at = self.arguments.len() + self.arguments.len() / 8;
        partial(&self.arguments)
    }
}
