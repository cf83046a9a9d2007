//! The events and messages of Yoagent, in the form that programs match on and serialize.

use portcullis_types::{Content, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use crate::yoagent::types::ToolResult;

/// An event of Yoagent.
///
/// In serialized form, `type` is the variant's name, and all names are in camel case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum AgentEvent {
    /// The run starts.
    AgentStart,
    /// A turn starts: the model is asked.
    TurnStart,
    /// A message starts.
    MessageStart {
        /// The message. The model's message has no content yet.
        message: Message,
    },
    /// More of the model's message.
    MessageUpdate {
        /// The message without content, because the pieces carry the content.
        message: Message,
        /// The piece by which the message grows.
        delta: StreamDelta,
    },
    /// A message is complete.
    MessageEnd {
        /// The complete message.
        message: Message,
    },
    /// The model requests a call.
    ToolExecutionStart {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The arguments as JSON, or a string if they are not JSON.
        args: Value,
    },
    /// A tool reports a partial result.
    ToolExecutionUpdate {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The partial result.
        partial_result: ToolResult,
    },
    /// A tool reports progress.
    ProgressMessage {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The tool's text.
        text: String,
    },
    /// A call has ended.
    ToolExecutionEnd {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The result. The content of a failed call is the error's message.
        result: ToolResult,
        /// Whether the call failed.
        is_error: bool,
    },
    /// The turn has ended.
    TurnEnd {
        /// The model's message.
        message: Message,
        /// The results of the calls, as the model reads them.
        tool_results: Vec<Message>,
    },
    /// The model repeated the same call, which ended the run.
    LoopDetected {
        /// The tool's name.
        tool_name: String,
        /// Whether the repetition ended the run. Always true.
        aborted: bool,
    },
    /// The run has ended.
    AgentEnd {
        /// The last message. [`AgentEvent::TurnEnd`] had the others.
        messages: Vec<Message>,
        /// Statistics of the run.
        stats: SessionStats,
    },
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum StreamDelta {
    /// A piece of the message's text.
    Text {
        /// The text of the piece.
        delta: String,
    },
    /// A piece of the model's thinking.
    Thinking {
        /// The text of the piece.
        delta: String,
    },
    /// A piece of a call's arguments.
    ToolCallDelta {
        /// The text of the piece.
        delta: String,
    },
}

/// A message of the conversation, in yoagent's JSON.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Message {
    /// A message of the person.
    User {
        /// The blocks of the message.
        content: Vec<Content>,
    },
    /// A message of the model.
    Assistant {
        /// The content, followed by the calls.
        content: Vec<Block>,
        /// The stop reason; `None` while the message is incomplete.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
        /// The turn's tokens, if the provider reports them.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Why the answer is incomplete; `None` if it is complete.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
    },
    /// The result of a call.
    ToolResult {
        /// The call's id.
        tool_call_id: String,
        /// The tool's name.
        tool_name: String,
        /// The content that the model reads.
        content: Vec<Content>,
        /// Whether the call failed.
        is_error: bool,
    },
}

/// A block of the model's message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
pub enum Block {
    /// Content.
    Content(Content),
    /// A call of a tool that the model requests.
    ToolCall(CallBlock),
}

/// A call, as a block of the model's message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "toolCall")]
pub struct CallBlock {
    /// The call's id.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// The arguments as JSON, or a string if they are not JSON.
    pub arguments: Value,
}

impl From<&ToolCall> for CallBlock {
    fn from(call: &ToolCall) -> Self {
        Self { id: call.id.clone(), name: call.tool.clone(), arguments: arguments_of(&call.arguments) }
    }
}

/// Why a message ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub enum StopReason {
    /// The model is done.
    Stop,
    /// The model waits for the results of its calls.
    ToolUse,
    /// The token limit was reached.
    Length,
    /// The provider withheld the rest.
    Refusal,
    /// There is no complete answer.
    Error,
    /// The run was cancelled.
    Aborted,
}

/// Numbers of tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usage {
    /// Tokens of the requests.
    pub input: u64,
    /// Tokens of the answers.
    pub output: u64,
    /// The sum of both.
    pub total_tokens: u64,
}

impl Usage {
    /// Adds a turn's tokens.
    pub(super) fn add(&mut self, usage: portcullis_agent::Usage) {
        // Saturate, because a provider chooses these numbers.
        self.input = self.input.saturating_add(usage.input_tokens);
        self.output = self.output.saturating_add(usage.output_tokens);
        self.total_tokens = self.input.saturating_add(self.output);
    }
}

impl From<portcullis_agent::Usage> for Usage {
    fn from(usage: portcullis_agent::Usage) -> Self {
        let mut used = Self::default();
        used.add(usage);
        used
    }
}

/// Statistics of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct SessionStats {
    /// The number of completed turns.
    pub turns: u32,
    /// The tokens of all turns.
    pub usage: Usage,
}

/// Parses arguments. Empty text means no arguments, and text that is not JSON becomes a string.
pub(super) fn arguments_of(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
