//! [`EverrunsEvents`]: the event format of Everruns.

use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_types::{Message, ToolEvent, ToolResult};
use serde_json::{Value, json};

use super::{EventFormat, calls::TrackedCalls, ending};
use crate::everruns::ToolExecutionResult;

/// The event format of Everruns: `ToolCallStart` before a call, `ToolCallResult` after it. Everything else is an event
/// of AG-UI, as in Everruns itself: `type` is the event's name, and fields are in camel case.
///
/// | event | fields | source |
/// |---|---|---|
/// | `RunStarted` | `threadId` (the agent), `runId` | [`AgentEvent::AgentStart`] |
/// | `StepStarted` | `stepName` (`iteration-N`) | [`AgentEvent::TurnStart`] |
/// | `TextMessageStart` | `messageId`, `role` | the first [`AgentEvent::TextDelta`] of a turn; [`AgentEvent::Steered`] |
/// | `TextMessageContent` | `messageId`, `delta` (never empty) | [`AgentEvent::TextDelta`]; [`AgentEvent::Steered`] |
/// | `TextMessageEnd` | `messageId` | [`AgentEvent::MessageEnd`]; [`AgentEvent::Steered`] |
/// | `ToolCallStart` | `toolCallId`, `toolCallName` | the first of [`ToolEvent::ArgumentsDelta`] and [`ToolEvent::Requested`] |
/// | `ToolCallArgs` | `toolCallId`, `delta` (the JSON text) | [`ToolEvent::ArgumentsDelta`]; [`ToolEvent::Requested`] if there was none |
/// | `ToolCallEnd` | `toolCallId` | [`ToolEvent::Requested`]: the arguments are whole; the turn's end for a call that was cut off |
/// | `Custom` `hitl.request` | `value.toolCallId` | [`ToolEvent::ApprovalRequested`] |
/// | `Custom` `hitl.decision` | `value.toolCallId`, `value.approved` | [`ToolEvent::ApprovalResolved`] |
/// | `ToolCallResult` | `messageId`, `toolCallId`, `role` (`tool`), `content` | [`AgentEvent::ToolEnd`] |
/// | `StepFinished` | `stepName` | [`AgentEvent::TurnEnd`] |
/// | `RunFinished` | `threadId`, `runId`, `result` (the answer) | [`AgentEnd::Answer`] |
/// | `RunError` | `message`, `code` | each other [`AgentEnd`] |
///
/// `content` is the result, or `{"error": "…"}` with one fixed sentence for every internal error.
/// `messageId`s count up within the run. `code` is `max_iterations`, `length`, `repeated`, `cancelled`,
/// `provider` or `internal`.
///
/// Omitted, because the format has no event for them: [`AgentEvent::ThinkingDelta`], a turn's tokens,
/// [`ToolEvent::Started`], [`ToolEvent::Heartbeat`], [`ToolEvent::Progress`], [`ToolEvent::Update`],
/// [`ToolEvent::Pending`], and `timestamp`, which is optional there.
#[derive(Debug, Default)]
pub struct EverrunsEvents {
    thread_id: String,
    run_id: String,
    /// The number of messages so far.
    message_count: u64,
    /// The id of the model's message in progress.
    open_message_id: Option<String>,
    /// The calls whose arguments are still being streamed.
    streaming_calls: TrackedCalls<()>,
}

impl EventFormat for EverrunsEvents {
    fn values(&mut self, event: &AgentEvent) -> Vec<Value> {
        match event {
            AgentEvent::AgentStart { agent_id, run_id } => {
                self.thread_id.clone_from(agent_id);
                self.run_id.clone_from(run_id);
                vec![json!({"type": "RunStarted", "threadId": agent_id, "runId": run_id})]
            }
            AgentEvent::TurnStart { iteration } => {
                vec![json!({"type": "StepStarted", "stepName": step_name(*iteration)})]
            }
            AgentEvent::TextDelta { delta } => self.text(delta),
            AgentEvent::MessageEnd { message } => self.message_end(message),
            AgentEvent::Tool(event) => self.tool(event),
            AgentEvent::ToolEnd { result } => vec![self.result(result)],
            AgentEvent::Steered { messages } => {
                messages.iter().flat_map(|message| self.user_message(message)).collect()
            }
            AgentEvent::TurnEnd { iteration, .. } => {
                let mut values = self.end_streaming_calls();
                values.push(json!({"type": "StepFinished", "stepName": step_name(*iteration)}));
                values
            }
            AgentEvent::AgentEnd { end } => self.end(end),
            AgentEvent::ThinkingDelta { .. } => Vec::new(),
        }
    }
}

impl EverrunsEvents {
    fn text(&mut self, delta: &str) -> Vec<Value> {
        let mut values = Vec::new();
        if delta.is_empty() {
            return values;
        }
        let id = match &self.open_message_id {
            Some(id) => id.clone(),
            None => {
                let id = self.next_message_id();
                values.push(message_start(&id, "assistant"));
                self.open_message_id.insert(id).clone()
            }
        };
        values.push(message_content(&id, delta));
        values
    }

    /// Ends the model's message. A provider that does not stream sends the message's text only here.
    fn message_end(&mut self, message: &Message) -> Vec<Value> {
        let mut values = if self.open_message_id.is_none() { self.text(&message.text()) } else { Vec::new() };
        values.extend(self.open_message_id.take().map(|id| message_end(&id)));
        values
    }

    fn user_message(&mut self, message: &Message) -> Vec<Value> {
        let text = message.text();
        if text.is_empty() {
            return Vec::new();
        }
        let id = self.next_message_id();
        vec![message_start(&id, "user"), message_content(&id, &text), message_end(&id)]
    }

    fn tool(&mut self, event: &ToolEvent) -> Vec<Value> {
        match event {
            ToolEvent::ArgumentsDelta { call_id, tool, delta } => {
                // Check before `open`, which starts tracking the call.
                let is_new = !self.streaming_calls.is_tracked(call_id);
                if delta.is_empty() || self.streaming_calls.open(call_id, || ()).is_none() {
                    // Too many calls are tracked. The complete arguments follow with `Requested`.
                    return Vec::new();
                }
                let start = is_new.then(|| call_start(call_id, tool));
                start.into_iter().chain([call_arguments(call_id, delta)]).collect()
            }
            ToolEvent::Requested { call_id, tool, arguments } => {
                let mut values = Vec::new();
                if self.streaming_calls.close(call_id).is_none() {
                    values.push(call_start(call_id, tool));
                    if !arguments.is_empty() {
                        values.push(call_arguments(call_id, arguments));
                    }
                }
                values.push(call_end(call_id));
                values
            }
            ToolEvent::ApprovalRequested { call_id } => {
                vec![json!({"type": "Custom", "name": "hitl.request", "value": {"toolCallId": call_id}})]
            }
            ToolEvent::ApprovalResolved { call_id, approved } => {
                let value = json!({"toolCallId": call_id, "approved": approved});
                vec![json!({"type": "Custom", "name": "hitl.decision", "value": value})]
            }
            ToolEvent::Started { .. }
            | ToolEvent::Heartbeat { .. }
            | ToolEvent::Progress { .. }
            | ToolEvent::Update { .. }
            | ToolEvent::Pending { .. }
            | ToolEvent::Finished { .. } => Vec::new(),
        }
    }

    fn result(&mut self, result: &ToolResult) -> Value {
        let id = self.next_message_id();
        let content = ToolExecutionResult::from(result.clone()).model_value();
        json!({
            "type": "ToolCallResult",
            "messageId": id,
            "toolCallId": result.call_id,
            "role": "tool",
            "content": content,
        })
    }

    /// Ends the calls whose arguments were never completed.
    fn end_streaming_calls(&mut self) -> Vec<Value> {
        self.streaming_calls.close_where(|()| true).iter().map(|(id, ())| call_end(id)).collect()
    }

    fn end(&mut self, end: &AgentEnd) -> Vec<Value> {
        let mut values: Vec<Value> =
            self.open_message_id.take().map(|id| message_end(&id)).into_iter().collect();
        values.extend(self.end_streaming_calls());
        values.push(match ending::failure(end) {
            None => json!({
                "type": "RunFinished",
                "threadId": self.thread_id,
                "runId": self.run_id,
                "result": ending::answer(end),
            }),
            Some(failure) => {
                json!({"type": "RunError", "message": failure.message, "code": failure.code})
            }
        });
        values
    }

    fn next_message_id(&mut self) -> String {
        self.message_count += 1;
        format!("{}-{}", self.run_id, self.message_count)
    }
}

fn step_name(iteration: u32) -> String {
    format!("iteration-{iteration}")
}

fn message_start(id: &str, role: &str) -> Value {
    json!({"type": "TextMessageStart", "messageId": id, "role": role})
}

fn message_content(id: &str, delta: &str) -> Value {
    json!({"type": "TextMessageContent", "messageId": id, "delta": delta})
}

fn message_end(id: &str) -> Value {
    json!({"type": "TextMessageEnd", "messageId": id})
}

fn call_start(id: &str, tool: &str) -> Value {
    json!({"type": "ToolCallStart", "toolCallId": id, "toolCallName": tool})
}

fn call_arguments(id: &str, delta: &str) -> Value {
    json!({"type": "ToolCallArgs", "toolCallId": id, "delta": delta})
}

fn call_end(id: &str) -> Value {
    json!({"type": "ToolCallEnd", "toolCallId": id})
}
