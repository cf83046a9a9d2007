//! [`HsafaEvents`]: the event format of Hsafa.

use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_types::{ToolErrorKind, ToolEvent, ToolOutcome, ToolResult};
use serde_json::{Value, json};

use super::{EventFormat, calls::TrackedCalls, ending, partial::parse_partial};
use crate::everruns::ToolExecutionResult;

/// The maximum number of buffered bytes of a call's arguments. Beyond it, pieces are passed on without
/// `partialArgs`, and the complete arguments follow at the end.
pub const MAX_PARTIAL_ARGUMENT_BYTES: usize = 64 * 1024;

/// The event format of Hsafa: flat objects in camel case, each with `type`, `runId` and `agentEntityId`. Events of a
/// call also have `streamId` (the call's id) and `toolName`.
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
/// `partialArgs` is sent each time the text has grown by an eighth, so that long arguments are not repeated
/// too often, and only while the text has at most [`MAX_PARTIAL_ARGUMENT_BYTES`]. A call whose result is
/// submitted later stays in `requires_action`: its `{"status": "pending"}` causes no `tool.done`. `error` and
/// `result` are the result as the model reads it; an internal error is one fixed sentence.
///
/// Omitted, because in this system the model's text is private and people see only its calls:
/// [`AgentEvent::TurnStart`], [`AgentEvent::TextDelta`], [`AgentEvent::ThinkingDelta`],
/// [`AgentEvent::MessageEnd`], a turn's tokens. Omitted, because the format has no event for them:
/// [`AgentEvent::Steered`], [`ToolEvent::ApprovalResolved`], [`ToolEvent::Started`],
/// [`ToolEvent::Heartbeat`], [`ToolEvent::Progress`], [`ToolEvent::Update`]. The sender of the stream adds
/// the stream's `id`, `seq` and `ts`.
#[derive(Debug, Default)]
pub struct HsafaEvents {
    run_id: String,
    agent_id: String,
    calls: TrackedCalls<StreamedCall>,
}

/// The state of a call in progress.
#[derive(Debug, Default)]
struct StreamedCall {
    tool: String,
    /// The text of the arguments so far; empty when the arguments are complete or too long.
    arguments: String,
    /// Whether the call was requested. An [`AgentEvent::ToolEnd`] will then follow.
    is_requested: bool,
    /// Whether `arguments` has the whole text so far.
    is_complete: bool,
    /// The length at which `partialArgs` is sent again.
    next_parse_bytes: usize,
}

impl EventFormat for HsafaEvents {
    fn values(&mut self, event: &AgentEvent) -> Vec<Value> {
        match event {
            AgentEvent::AgentStart { agent_id, run_id } => {
                self.agent_id.clone_from(agent_id);
                self.run_id.clone_from(run_id);
                vec![self.run_event("run.started")]
            }
            AgentEvent::Tool(event) => self.tool(event),
            AgentEvent::ToolEnd { result } => self.tool_end(result).into_iter().collect(),
            AgentEvent::AgentEnd { end } => {
                let mut values = self.cut_off_errors();
                values.push(self.end(end));
                values
            }
            AgentEvent::TurnEnd { .. } => self.cut_off_errors(),
            AgentEvent::TurnStart { .. }
            | AgentEvent::TextDelta { .. }
            | AgentEvent::ThinkingDelta { .. }
            | AgentEvent::MessageEnd { .. }
            | AgentEvent::Steered { .. } => Vec::new(),
        }
    }
}

impl HsafaEvents {
    fn tool(&mut self, event: &ToolEvent) -> Vec<Value> {
        match event {
            ToolEvent::ArgumentsDelta { call_id, tool, delta } => self.arguments_delta(call_id, tool, delta),
            ToolEvent::Requested { call_id, tool, arguments } => {
                self.call_requested(call_id, tool, arguments)
            }
            ToolEvent::ApprovalRequested { call_id } => vec![self.waiting_event(call_id, "approval")],
            ToolEvent::Pending { call_id, .. } => vec![self.waiting_event(call_id, "result")],
            ToolEvent::ApprovalResolved { .. }
            | ToolEvent::Started { .. }
            | ToolEvent::Heartbeat { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Update { .. }
            | ToolEvent::Finished { .. } => Vec::new(),
        }
    }

    fn arguments_delta(&mut self, call_id: &str, tool: &str, delta: &str) -> Vec<Value> {
        let is_new = !self.calls.is_tracked(call_id);
        let new_call =
            || StreamedCall { tool: tool.to_owned(), is_complete: true, ..StreamedCall::default() };
        let Some(call) = self.calls.open(call_id, new_call) else {
            // Too many calls are tracked. The call is reported only with `Requested`.
            return Vec::new();
        };
        let partial_args = call.append_delta(delta);
        let mut values = Vec::new();
        if is_new {
            values.push(self.call_event("tool.started", call_id, tool));
        }
        if !delta.is_empty() {
            let mut value = self.call_event("tool.streaming", call_id, tool);
            value["delta"] = delta.into();
            if let Some(partial_args) = partial_args {
                value["partialArgs"] = partial_args;
            }
            values.push(value);
        }
        values
    }

    fn call_requested(&mut self, call_id: &str, tool: &str, arguments: &str) -> Vec<Value> {
        let is_new = !self.calls.is_tracked(call_id);
        if let Some(call) = self.calls.open(call_id, StreamedCall::default) {
            // The arguments are complete, so drop the buffered text.
            *call = StreamedCall { tool: tool.to_owned(), is_requested: true, ..StreamedCall::default() };
        }
        let mut values = Vec::new();
        if is_new {
            values.push(self.call_event("tool.started", call_id, tool));
        }
        let mut value = self.call_event("tool.streaming", call_id, tool);
        value["partialArgs"] = match arguments.trim() {
            "" => json!({}),
            // Show text that is not JSON as the model wrote it.
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        };
        values.push(value);
        values
    }

    fn waiting_event(&self, call_id: &str, reason: &str) -> Value {
        let tool = self.calls.get(call_id).map_or("", |call| &call.tool);
        let mut value = self.call_event("run.waiting_tool", call_id, tool);
        value["status"] = "requires_action".into();
        value["reason"] = reason.into();
        value
    }

    fn tool_end(&mut self, result: &ToolResult) -> Option<Value> {
        self.calls.close(&result.call_id);
        let model_value = ToolExecutionResult::from(result.clone()).model_value();
        match &result.outcome {
            // The call stays in `requires_action`.
            ToolOutcome::Pending { .. } => None,
            ToolOutcome::Output(_) => {
                let mut value = self.call_event("tool.done", &result.call_id, &result.tool);
                value["result"] = model_value;
                Some(value)
            }
            ToolOutcome::Error(error) => {
                let mut value = self.call_event("tool.error", &result.call_id, &result.tool);
                value["error"] = model_value["error"].clone();
                value["code"] = error.kind().as_str().into();
                Some(value)
            }
        }
    }

    /// Reports the calls whose arguments were never completed. None of these calls will run.
    fn cut_off_errors(&mut self) -> Vec<Value> {
        let calls = self.calls.close_where(|call| !call.is_requested);
        let errors = calls.into_iter().map(|(id, call)| {
            let mut value = self.call_event("tool.error", &id, &call.tool);
            value["error"] = "the call was cut off".into();
            value["code"] = ToolErrorKind::Failed.as_str().into();
            value
        });
        errors.collect()
    }

    fn end(&self, end: &AgentEnd) -> Value {
        let Some(failure) = ending::failure(end) else {
            let mut value = self.run_event("run.completed");
            value["text"] = ending::answer(end).into();
            return value;
        };
        if *end == AgentEnd::Cancelled {
            return self.run_event("run.cancelled");
        }
        let mut value = self.run_event("run.failed");
        value["error"] = failure.message.into();
        value["code"] = failure.code.into();
        value
    }

    fn run_event(&self, kind: &str) -> Value {
        json!({"type": kind, "runId": self.run_id, "agentEntityId": self.agent_id})
    }

    fn call_event(&self, kind: &str, call_id: &str, tool: &str) -> Value {
        let mut value = self.run_event(kind);
        value["streamId"] = call_id.into();
        value["toolName"] = tool.into();
        value
    }
}

impl StreamedCall {
    /// Appends a piece to the arguments, and returns `partialArgs` if they are due.
    fn append_delta(&mut self, delta: &str) -> Option<Value> {
        self.is_complete &= self.arguments.len() + delta.len() <= MAX_PARTIAL_ARGUMENT_BYTES;
        if !self.is_complete {
            // Free the buffer. `is_complete` stays false, so no later piece is buffered.
            self.arguments = String::new();
            return None;
        }
        self.arguments.push_str(delta);
        if self.arguments.len() < self.next_parse_bytes {
            return None;
        }
        // An increase by an eighth keeps the sum of all `partialArgs` proportional to the arguments' length.
        self.next_parse_bytes = self.arguments.len() + self.arguments.len() / 8;
        parse_partial(&self.arguments)
    }
}
