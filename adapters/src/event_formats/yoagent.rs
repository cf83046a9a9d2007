//! [`YoagentEvents`]: the event format of Yoagent.

use std::sync::Arc;

use portcullis_agent::{self as agent, AgentEnd};
use portcullis_types::{Content, ToolEvent, ToolResult};
use serde_json::{Value, json};

use self::wire::arguments_of;
use super::{EventFormat, calls::TrackedCalls, ending};
use crate::yoagent::types as tool;

mod wire;

pub use wire::{AgentEvent, Block, CallBlock, Message, SessionStats, StopReason, StreamDelta, Usage};

/// The event format of Yoagent: `type` is the variant's name, and every field is in camel case.
/// Programs match on [`AgentEvent`], which [`YoagentEvents::events`] returns.
///
/// | event | fields | source |
/// |---|---|---|
/// | `agentStart` | | [`AgentStart`](agent::AgentEvent::AgentStart) |
/// | `turnStart` | | [`TurnStart`](agent::AgentEvent::TurnStart) |
/// | `messageStart` | `message` (without content yet) | the first delta of a turn; [`Steered`](agent::AgentEvent::Steered) |
/// | `messageUpdate` | `message` (without content), `delta` | [`TextDelta`](agent::AgentEvent::TextDelta), [`ThinkingDelta`](agent::AgentEvent::ThinkingDelta), [`ToolEvent::ArgumentsDelta`] |
/// | `messageEnd` | `message` | [`MessageEnd`](agent::AgentEvent::MessageEnd); [`Steered`](agent::AgentEvent::Steered) |
/// | `toolExecutionStart` | `toolCallId`, `toolName`, `args` | [`ToolEvent::Requested`] |
/// | `toolExecutionUpdate` | `toolCallId`, `toolName`, `partialResult` | [`ToolEvent::Update`] |
/// | `progressMessage` | `toolCallId`, `toolName`, `text` | [`ToolEvent::Progress`] |
/// | `toolExecutionEnd` | `toolCallId`, `toolName`, `result`, `isError` | [`ToolEnd`](agent::AgentEvent::ToolEnd) |
/// | `turnEnd` | `message`, `toolResults` | [`TurnEnd`](agent::AgentEvent::TurnEnd) |
/// | `loopDetected` | `toolName`, `aborted` (true) | [`AgentEnd::Repeated`] |
/// | `agentEnd` | `messages`, `stats` | [`AgentEnd`](agent::AgentEvent::AgentEnd) |
///
/// `delta` is `{"type": "text" | "thinking" | "toolCallDelta", "delta"}`. `args` are the arguments as JSON,
/// or a string if they are not JSON. `result` and `partialResult` have `content` and `details`; the `content`
/// of a failed call is the error's message, and one fixed sentence for an internal error.
///
/// `message` has `role`, `content` (with `toolCall` blocks after the text), `stopReason` (`stop`, `toolUse`,
/// `length`, `refusal`, `error`, `aborted`) and, in `turnEnd`, `usage`. A run without a complete answer sends
/// an additional `messageEnd`, with `errorMessage`, before `agentEnd`. `messages` has only the last message,
/// because `turnEnd` had the others. `stats` are `turns` and `usage` (`input`, `output`, tokens).
///
/// Omitted, because the format has no event for them: the ids of agent and run, the number of a turn,
/// [`ToolEvent::Started`], [`ToolEvent::Heartbeat`], [`ToolEvent::ApprovalRequested`],
/// [`ToolEvent::ApprovalResolved`], [`ToolEvent::Pending`]. Omitted, because the events do not carry them: a
/// message's `model`, `provider` and `timestamp`, cached tokens, costs.
#[derive(Debug, Default)]
pub struct YoagentEvents {
    /// Whether the start of the model's message was sent.
    is_writing: bool,
    /// The model's message of this turn.
    message: Option<Arc<portcullis_types::Message>>,
    /// The results of this turn's calls.
    results: Vec<Arc<ToolResult>>,
    /// The tool names of the calls in progress.
    running: TrackedCalls<String>,
    stats: SessionStats,
}

impl EventFormat for YoagentEvents {
    fn values(&mut self, event: &agent::AgentEvent) -> Vec<Value> {
        self.events(event).into_iter().map(|event| json!(event)).collect()
    }
}

impl YoagentEvents {
    /// Converts an event to events of this format, in order.
    pub fn events(&mut self, event: &agent::AgentEvent) -> Vec<AgentEvent> {
        match event {
            agent::AgentEvent::AgentStart { .. } => vec![AgentEvent::AgentStart],
            agent::AgentEvent::TurnStart { .. } => {
                self.message = None;
                self.results.clear();
                vec![AgentEvent::TurnStart]
            }
            agent::AgentEvent::TextDelta { delta } => self.update(StreamDelta::Text { delta: delta.clone() }),
            agent::AgentEvent::ThinkingDelta { delta } => {
                self.update(StreamDelta::Thinking { delta: delta.clone() })
            }
            agent::AgentEvent::MessageEnd { message } => self.message_end(message),
            agent::AgentEvent::Tool(event) => self.tool(event),
            agent::AgentEvent::ToolEnd { result } => {
                self.running.close(&result.call_id);
                self.results.push(Arc::clone(result));
                vec![tool_end(result)]
            }
            agent::AgentEvent::Steered { messages } => messages.iter().flat_map(user_message).collect(),
            agent::AgentEvent::TurnEnd { iteration: _, stop, usage } => vec![self.turn_end(stop, *usage)],
            agent::AgentEvent::AgentEnd { end } => self.end(end),
        }
    }

    fn update(&mut self, delta: StreamDelta) -> Vec<AgentEvent> {
        let mut events = self.start_message();
        events.push(AgentEvent::MessageUpdate { message: empty_assistant_message(), delta });
        events
    }

    /// Returns the start of the model's message, unless it was sent already.
    fn start_message(&mut self) -> Vec<AgentEvent> {
        if std::mem::replace(&mut self.is_writing, true) {
            return Vec::new();
        }
        vec![AgentEvent::MessageStart { message: empty_assistant_message() }]
    }

    fn message_end(&mut self, message: &Arc<portcullis_types::Message>) -> Vec<AgentEvent> {
        let mut events = self.start_message();
        self.is_writing = false;
        self.message = Some(Arc::clone(message));
        events.push(AgentEvent::MessageEnd { message: assistant_message(message, None, None) });
        events
    }

    fn tool(&mut self, event: &ToolEvent) -> Vec<AgentEvent> {
        match event {
            ToolEvent::ArgumentsDelta { delta, .. } => {
                self.update(StreamDelta::ToolCallDelta { delta: delta.clone() })
            }
            ToolEvent::Requested { call_id, tool, arguments } => {
                self.running.open(call_id, || tool.clone());
                vec![AgentEvent::ToolExecutionStart {
                    tool_call_id: call_id.clone(),
                    tool_name: tool.clone(),
                    args: arguments_of(arguments),
                }]
            }
            ToolEvent::Update { call_id, partial } => vec![AgentEvent::ToolExecutionUpdate {
                tool_call_id: call_id.clone(),
                tool_name: self.tool_of(call_id),
                partial_result: partial.clone().into(),
            }],
            ToolEvent::Progress { call_id, text } => vec![AgentEvent::ProgressMessage {
                tool_call_id: call_id.clone(),
                tool_name: self.tool_of(call_id),
                text: text.clone(),
            }],
            ToolEvent::Started { .. }
            | ToolEvent::Heartbeat { .. }
            | ToolEvent::ApprovalRequested { .. }
            | ToolEvent::ApprovalResolved { .. }
            | ToolEvent::Pending { .. }
            | ToolEvent::Finished { .. } => Vec::new(),
        }
    }

    fn tool_of(&self, call_id: &str) -> String {
        self.running.get(call_id).cloned().unwrap_or_default()
    }

    fn turn_end(&mut self, stop: &agent::StopReason, usage: Option<agent::Usage>) -> AgentEvent {
        self.stats.turns = self.stats.turns.saturating_add(1);
        if let Some(usage) = usage {
            self.stats.usage.add(usage);
        }
        let message = match &self.message {
            Some(message) => assistant_message(message, Some(stop), usage),
            None => empty_assistant_message(),
        };
        let tool_results = self.results.drain(..).map(|result| result_message(&result)).collect();
        AgentEvent::TurnEnd { message, tool_results }
    }

    fn end(&mut self, end: &AgentEnd) -> Vec<AgentEvent> {
        let mut events = Vec::new();
        if let AgentEnd::Repeated { tool } = end {
            events.push(AgentEvent::LoopDetected { tool_name: tool.clone(), aborted: true });
        }
        let last_message = match ending::failure(end) {
            None => self.message.take().map(|message| assistant_message(&message, None, None)),
            Some(failure) => {
                let message = failure_message(end, failure.message);
                events.extend(self.start_message());
                events.push(AgentEvent::MessageEnd { message: message.clone() });
                Some(message)
            }
        };
        events.push(AgentEvent::AgentEnd { messages: last_message.into_iter().collect(), stats: self.stats });
        events
    }
}

/// Returns the model's message while its content is incomplete.
fn empty_assistant_message() -> Message {
    Message::Assistant { content: Vec::new(), stop_reason: None, usage: None, error_message: None }
}

/// Converts the model's message. Its stop reason is known only at the turn's end. Until then, the message is
/// assumed to end in `toolUse` if it has calls, and in `stop` otherwise.
fn assistant_message(
    message: &portcullis_types::Message,
    stop: Option<&agent::StopReason>,
    usage: Option<agent::Usage>,
) -> Message {
    let content = message.content.iter().cloned().map(Block::Content);
    let calls = message.tool_calls.iter().map(|call| Block::ToolCall(call.into()));
    let stop = match stop {
        Some(agent::StopReason::Length) => StopReason::Length,
        Some(agent::StopReason::ContentFilter) => StopReason::Refusal,
        Some(agent::StopReason::ToolCalls) => StopReason::ToolUse,
        Some(agent::StopReason::Stop | agent::StopReason::Other(_)) => StopReason::Stop,
        None if message.tool_calls.is_empty() => StopReason::Stop,
        None => StopReason::ToolUse,
    };
    Message::Assistant {
        content: content.chain(calls).collect(),
        stop_reason: Some(stop),
        usage: usage.map(Into::into),
        error_message: None,
    }
}

/// Returns the message of a run without a complete answer.
fn failure_message(end: &AgentEnd, message: String) -> Message {
    let stop = match end {
        AgentEnd::Length { .. } => StopReason::Length,
        AgentEnd::Cancelled => StopReason::Aborted,
        _ => StopReason::Error,
    };
    Message::Assistant {
        content: ending::answer(end).map(|text| Block::Content(Content::text(text))).into_iter().collect(),
        stop_reason: Some(stop),
        usage: None,
        error_message: Some(message),
    }
}

/// Returns the events of a person's message.
fn user_message(message: &portcullis_types::Message) -> [AgentEvent; 2] {
    let message = Message::User { content: message.content.clone() };
    [AgentEvent::MessageStart { message: message.clone() }, AgentEvent::MessageEnd { message }]
}

fn tool_end(result: &ToolResult) -> AgentEvent {
    AgentEvent::ToolExecutionEnd {
        tool_call_id: result.call_id.clone(),
        tool_name: result.tool.clone(),
        result: tool::ToolResult { content: content_of(result), details: result.details.clone() },
        is_error: result.outcome.is_error(),
    }
}

fn result_message(result: &ToolResult) -> Message {
    Message::ToolResult {
        tool_call_id: result.call_id.clone(),
        tool_name: result.tool.clone(),
        content: content_of(result),
        is_error: result.outcome.is_error(),
    }
}

fn content_of(result: &ToolResult) -> Vec<Content> {
    match result.outcome.clone().into_result() {
        Ok(output) => output.content,
        Err(error) => vec![Content::text(error.to_string())],
    }
}
