//! [`EverrunsEvents`]: the event format of specification 000.

use portcullis_agent::{AgentEnd, AgentEvent};
use portcullis_types::{Message, ToolEvent, ToolResult};
use serde_json::{Value, json};

use super::{EventFormat, calls::OpenCalls, ending};
use crate::everruns::ToolExecutionResult;

/// Event format of specification 000 ("Execution Flow": `ToolCallStart` before a call, `ToolCallResult` after
/// it). For all else that project uses the events of AG-UI, and so does this format: `type` is the event's
/// name, fields are in camel case.
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
/// `content` follows the specification's "Error Handling Contract": the result, or `{"error": "…"}`, which is
/// one fixed sentence for every internal error. `messageId`s count up within the run. `code` is
/// `max_iterations`, `length`, `repeated`, `cancelled`, `provider` or `internal`.
///
/// Omitted, because the format has no event for them: [`AgentEvent::ThinkingDelta`], a turn's tokens,
/// [`ToolEvent::Started`], [`ToolEvent::Heartbeat`], [`ToolEvent::Progress`], [`ToolEvent::Update`],
/// [`ToolEvent::Pending`], and `timestamp`, which is optional there.
#[derive(Debug, Default)]
pub struct EverrunsEvents {
    thread_id: String,
    run_id: String,
    /// Number of messages so far.
    messages: u64,
    /// Id of the model's message in progress.
    writing: Option<String>,
    /// Calls whose arguments are still being streamed.
    arriving: OpenCalls<()>,
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
                vec![json!({"type": "StepStarted", "stepName": step(*iteration)})]
            }
            AgentEvent::TextDelta { delta } => self.text(delta),
            AgentEvent::MessageEnd { message } => self.message_end(message),
            AgentEvent::Tool(event) => self.tool(event),
            AgentEvent::ToolEnd { result } => vec![self.result(result)],
            AgentEvent::Steered { messages } => {
                messages.iter().flat_map(|message| self.user_message(message)).collect()
            }
            AgentEvent::TurnEnd { iteration, .. } => {
                let mut values = self.cut_off();
                values.push(json!({"type": "StepFinished", "stepName": step(*iteration)}));
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
        let id = match &self.writing {
            Some(id) => id.clone(),
            None => {
                let id = self.next_message();
                values.push(message_start(&id, "assistant"));
                self.writing.insert(id).clone()
            }
        };
        values.push(message_content(&id, delta));
        values
    }

    /// A provider that does not stream gives the text only here.
    fn message_end(&mut self, message: &Message) -> Vec<Value> {
        let mut values = if self.writing.is_none() { self.text(&message.text()) } else { Vec::new() };
        values.extend(self.writing.take().map(|id| message_end(&id)));
        values
    }

    fn user_message(&mut self, message: &Message) -> Vec<Value> {
        let text = message.text();
        if text.is_empty() {
            return Vec::new();
        }
        let id = self.next_message();
        vec![message_start(&id, "user"), message_content(&id, &text), message_end(&id)]
    }

    fn tool(&mut self, event: &ToolEvent) -> Vec<Value> {
        match event {
            ToolEvent::ArgumentsDelta { call_id, tool, delta } => {
                // Before `open`, which makes the call known.
                let is_new = !self.arriving.has(call_id);
                if delta.is_empty() || self.arriving.open(call_id, || ()).is_none() {
                    // Too many calls to track: the arguments come whole with `Requested`.
                    return Vec::new();
                }
                let start = is_new.then(|| call_start(call_id, tool));
                start.into_iter().chain([call_arguments(call_id, delta)]).collect()
            }
            ToolEvent::Requested { call_id, tool, arguments } => {
                let mut values = Vec::new();
                if self.arriving.close(call_id).is_none() {
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
        let id = self.next_message();
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
    fn cut_off(&mut self) -> Vec<Value> {
        self.arriving.close_where(|()| true).iter().map(|(id, ())| call_end(id)).collect()
    }

    fn end(&mut self, end: &AgentEnd) -> Vec<Value> {
        let mut values: Vec<Value> = self.writing.take().map(|id| message_end(&id)).into_iter().collect();
        values.extend(self.cut_off());
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

    fn next_message(&mut self) -> String {
        self.messages += 1;
        format!("{}-{}", self.run_id, self.messages)
    }
}

fn step(iteration: u32) -> String {
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
