//! [`Yoagent`]: a run in the words of specification 002.

use std::sync::Arc;

use portcullis_types::{Content, Message, MessageRole, ToolCall, ToolEvent, ToolResult};
use serde_json::{Value, json};

use super::{Form, calls::OpenCalls, ending};
use crate::agent::{AgentEnd, AgentEvent, StopReason, Usage};

/// A run as specification 002 has it ("Tool Execution Flow", "Consuming updates in your UI", "Progress
/// Messages"). Its project writes the events with `type` the variant's name and every field in camel case, and
/// so does this form.
///
/// | event | fields | of |
/// |---|---|---|
/// | `agentStart` | | [`AgentEvent::AgentStart`] |
/// | `turnStart` | | [`AgentEvent::TurnStart`] |
/// | `messageStart` | `message` (without content yet) | the first delta of a turn; [`AgentEvent::Steered`] |
/// | `messageUpdate` | `message` (without content), `delta` | [`AgentEvent::TextDelta`], [`AgentEvent::ThinkingDelta`], [`ToolEvent::ArgumentsDelta`] |
/// | `messageEnd` | `message` | [`AgentEvent::MessageEnd`]; [`AgentEvent::Steered`] |
/// | `toolExecutionStart` | `toolCallId`, `toolName`, `args` | [`ToolEvent::Requested`] |
/// | `toolExecutionUpdate` | `toolCallId`, `toolName`, `partialResult` | [`ToolEvent::Update`] |
/// | `progressMessage` | `toolCallId`, `toolName`, `text` | [`ToolEvent::Progress`] |
/// | `toolExecutionEnd` | `toolCallId`, `toolName`, `result`, `isError` | [`AgentEvent::ToolEnd`] |
/// | `turnEnd` | `message`, `toolResults` | [`AgentEvent::TurnEnd`] |
/// | `loopDetected` | `toolName`, `aborted` (true) | [`AgentEnd::Repeated`] |
/// | `agentEnd` | `messages`, `stats` | [`AgentEvent::AgentEnd`] |
///
/// `delta` is `{"type": "text" | "thinking" | "toolCallDelta", "delta"}`. `args` are the arguments as JSON, or
/// as a string where they are none. `result` and `partialResult` are `content` and `details`; of a failed call
/// `content` is the error's words, of an internal error the one sentence. `message` is `role`, `content`
/// (with `toolCall` blocks after the text), `stopReason` (`stop`, `toolUse`, `length`, `refusal`, `error`,
/// `aborted`) and, in `turnEnd`, `usage`. A run that ends without a whole answer says so in a `messageEnd` of
/// its own, with `errorMessage`, before `agentEnd`. `messages` is the last message alone, the others were in
/// `turnEnd`; `stats` are `turns` and `usage` (`input`, `output`, tokens).
///
/// Left out, because these words have nothing for them: who the agent and the run are, the number of a turn,
/// [`ToolEvent::Started`], [`ToolEvent::ApprovalRequested`], [`ToolEvent::ApprovalResolved`],
/// [`ToolEvent::Pending`]. Left out, because an event does not have them: a message's `model`, `provider` and
/// `timestamp`, what a cache gave, costs.
#[derive(Debug, Default)]
pub struct Yoagent {
    /// Whether the model's message was begun.
    is_writing: bool,
    /// The model's message of this turn.
    message: Option<Arc<Message>>,
    /// What came of the turn's calls.
    results: Vec<Arc<ToolResult>>,
    /// The names of the tools of calls that go on.
    running: OpenCalls<String>,
    turns: u32,
    input_tokens: u64,
    output_tokens: u64,
}

impl Form for Yoagent {
    fn values(&mut self, event: &AgentEvent) -> Vec<Value> {
        match event {
            AgentEvent::AgentStart { .. } => vec![json!({"type": "agentStart"})],
            AgentEvent::TurnStart { .. } => {
                self.message = None;
                self.results.clear();
                vec![json!({"type": "turnStart"})]
            }
            AgentEvent::TextDelta { delta } => self.update("text", delta),
            AgentEvent::ThinkingDelta { delta } => self.update("thinking", delta),
            AgentEvent::MessageEnd { message } => self.message_end(message),
            AgentEvent::Tool(event) => self.tool(event),
            AgentEvent::ToolEnd { result } => {
                self.running.close(&result.call_id);
                self.results.push(Arc::clone(result));
                vec![tool_end(result)]
            }
            AgentEvent::Steered { messages } => messages.iter().flat_map(said).collect(),
            AgentEvent::TurnEnd { iteration: _, stop, usage } => vec![self.turn_end(stop, *usage)],
            AgentEvent::AgentEnd { end } => self.end(end),
        }
    }
}

impl Yoagent {
    fn update(&mut self, kind: &str, delta: &str) -> Vec<Value> {
        let mut values = self.begin();
        let delta = json!({"type": kind, "delta": delta});
        values.push(json!({"type": "messageUpdate", "message": unwritten(), "delta": delta}));
        values
    }

    /// The message's start, if it was not said yet.
    fn begin(&mut self) -> Vec<Value> {
        if std::mem::replace(&mut self.is_writing, true) {
            return Vec::new();
        }
        vec![json!({"type": "messageStart", "message": unwritten()})]
    }

    fn message_end(&mut self, message: &Arc<Message>) -> Vec<Value> {
        let mut values = self.begin();
        self.is_writing = false;
        self.message = Some(Arc::clone(message));
        values.push(json!({"type": "messageEnd", "message": assistant(message, None, None)}));
        values
    }

    fn tool(&mut self, event: &ToolEvent) -> Vec<Value> {
        match event {
            ToolEvent::ArgumentsDelta { delta, .. } => self.update("toolCallDelta", delta),
            ToolEvent::Requested { call_id, tool, arguments } => {
                self.running.open(call_id, || tool.clone());
                vec![json!({
                    "type": "toolExecutionStart",
                    "toolCallId": call_id,
                    "toolName": tool,
                    "args": arguments_of(arguments),
                })]
            }
            ToolEvent::Update { call_id, partial } => vec![json!({
                "type": "toolExecutionUpdate",
                "toolCallId": call_id,
                "toolName": self.tool_of(call_id),
                "partialResult": {"content": partial.content, "details": partial.details},
            })],
            ToolEvent::Progress { call_id, text } => vec![json!({
                "type": "progressMessage",
                "toolCallId": call_id,
                "toolName": self.tool_of(call_id),
                "text": text,
            })],
            ToolEvent::Started { .. }
            | ToolEvent::ApprovalRequested { .. }
            | ToolEvent::ApprovalResolved { .. }
            | ToolEvent::Pending { .. }
            | ToolEvent::Finished { .. } => Vec::new(),
        }
    }

    fn tool_of(&self, call_id: &str) -> &str {
        self.running.get(call_id).map_or("", String::as_str)
    }

    fn turn_end(&mut self, stop: &StopReason, usage: Option<Usage>) -> Value {
        self.turns = self.turns.saturating_add(1);
        if let Some(usage) = usage {
            self.input_tokens = self.input_tokens.saturating_add(usage.input_tokens);
            self.output_tokens = self.output_tokens.saturating_add(usage.output_tokens);
        }
        let message = match &self.message {
            Some(message) => assistant(message, Some(stop), usage),
            None => unwritten(),
        };
        let results: Vec<Value> = self.results.drain(..).map(|result| result_message(&result)).collect();
        json!({"type": "turnEnd", "message": message, "toolResults": results})
    }

    fn end(&mut self, end: &AgentEnd) -> Vec<Value> {
        let mut values = Vec::new();
        if let AgentEnd::Repeated { tool } = end {
            values.push(json!({"type": "loopDetected", "toolName": tool, "aborted": true}));
        }
        let last = match ending::failure(end) {
            None => self.message.take().map(|message| assistant(&message, None, None)),
            Some(failure) => {
                let content: Vec<Content> = ending::answer(end).map(Content::text).into_iter().collect();
                let stop = match end {
                    AgentEnd::Length { .. } => "length",
                    AgentEnd::Cancelled => "aborted",
                    _ => "error",
                };
                let message = json!({
                    "role": "assistant",
                    "content": content,
                    "stopReason": stop,
                    "errorMessage": failure.message,
                });
                values.extend(self.begin());
                values.push(json!({"type": "messageEnd", "message": message}));
                Some(message)
            }
        };
        let stats = json!({"turns": self.turns, "usage": usage_of(self.input_tokens, self.output_tokens)});
        let messages: Vec<Value> = last.into_iter().collect();
        values.push(json!({"type": "agentEnd", "messages": messages, "stats": stats}));
        values
    }
}

/// The model's message before anything of it is whole.
fn unwritten() -> Value {
    json!({"role": "assistant", "content": []})
}

/// The model's message. What stopped it is known when the turn is over; until then it can be told from whether
/// it asks for calls.
fn assistant(message: &Message, stop: Option<&StopReason>, usage: Option<Usage>) -> Value {
    let mut content: Vec<Value> = message.content.iter().map(|content| json!(content)).collect();
    content.extend(message.tool_calls.iter().map(tool_call));
    let stop = match stop {
        Some(StopReason::Length) => "length",
        Some(StopReason::ContentFilter) => "refusal",
        Some(StopReason::ToolCalls) => "toolUse",
        Some(StopReason::Stop | StopReason::Other(_)) => "stop",
        None if message.tool_calls.is_empty() => "stop",
        None => "toolUse",
    };
    let mut value = json!({"role": "assistant", "content": content, "stopReason": stop});
    if let Some(usage) = usage {
        value["usage"] = usage_of(usage.input_tokens, usage.output_tokens);
    }
    value
}

fn tool_call(call: &ToolCall) -> Value {
    json!({"type": "toolCall", "id": call.id, "name": call.tool, "arguments": arguments_of(&call.arguments)})
}

/// What the person said in between.
fn said(message: &Message) -> [Value; 2] {
    let role = match message.role {
        MessageRole::System => "system",
        MessageRole::User => "user",
        MessageRole::Assistant => "assistant",
        MessageRole::Tool => "toolResult",
    };
    let message = json!({"role": role, "content": message.content});
    [json!({"type": "messageStart", "message": message}), json!({"type": "messageEnd", "message": message})]
}

fn tool_end(result: &ToolResult) -> Value {
    json!({
        "type": "toolExecutionEnd",
        "toolCallId": result.call_id,
        "toolName": result.tool,
        "result": {"content": content_of(result), "details": result.details},
        "isError": result.outcome.is_err(),
    })
}

fn result_message(result: &ToolResult) -> Value {
    json!({
        "role": "toolResult",
        "toolCallId": result.call_id,
        "toolName": result.tool,
        "content": content_of(result),
        "isError": result.outcome.is_err(),
    })
}

fn content_of(result: &ToolResult) -> Value {
    match &result.outcome {
        Ok(output) => json!(output.content),
        Err(error) => json!([Content::text(error.to_string())]),
    }
}

fn usage_of(input: u64, output: u64) -> Value {
    json!({"input": input, "output": output, "totalTokens": input.saturating_add(output)})
}

/// Empty text means no arguments, as everywhere; text that is no JSON stays text.
fn arguments_of(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
