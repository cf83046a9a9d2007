//! The events and messages of specification 002, as its programs match on them and as they are written.

use portcullis_types::{Content, ToolCall};
use serde::Serialize;
use serde_json::{Value, json};

use crate::yoagent::types::ToolResult;

/// An event of specification 002 ("Tool Execution Flow", "Consuming updates in your UI", "Progress Messages").
///
/// Written, `type` is the variant's name and every name is in camel case.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum AgentEvent {
    /// The run starts.
    AgentStart,
    /// The model is asked.
    TurnStart,
    /// A message begins.
    MessageStart {
        /// The message, of the model's without content yet.
        message: Message,
    },
    /// More of the model's message.
    MessageUpdate {
        /// The message, without content yet: that is what the pieces make.
        message: Message,
        /// The piece.
        delta: StreamDelta,
    },
    /// A message is whole.
    MessageEnd {
        /// The message.
        message: Message,
    },
    /// A call is asked for.
    ToolExecutionStart {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The arguments as JSON, or as a string where they are none.
        args: Value,
    },
    /// A tool reports a partial result.
    ToolExecutionUpdate {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The partial result.
        partial_result: ToolResult,
    },
    /// A tool reports progress.
    ProgressMessage {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The tool's text.
        text: String,
    },
    /// A call is over.
    ToolExecutionEnd {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// The result; of a failed call its content is the error's words.
        result: ToolResult,
        /// Whether the call failed.
        is_error: bool,
    },
    /// The turn is over.
    TurnEnd {
        /// The model's message.
        message: Message,
        /// What the model is told of each call.
        tool_results: Vec<Message>,
    },
    /// The model made the same call over and over, which ended the run.
    LoopDetected {
        /// The tool.
        tool_name: String,
        /// Whether the run ended by it.
        aborted: bool,
    },
    /// The run is over.
    AgentEnd {
        /// The last message; the others were in [`AgentEvent::TurnEnd`].
        messages: Vec<Message>,
        /// What the run took.
        stats: SessionStats,
    },
}

/// A piece of a message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "camelCase")]
#[non_exhaustive]
pub enum StreamDelta {
    /// Of its text.
    Text {
        /// The piece.
        delta: String,
    },
    /// Of what the model thinks.
    Thinking {
        /// The piece.
        delta: String,
    },
    /// Of a call's arguments.
    ToolCallDelta {
        /// The piece.
        delta: String,
    },
}

/// A message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "role", rename_all = "camelCase", rename_all_fields = "camelCase")]
#[non_exhaustive]
pub enum Message {
    /// What the person says.
    User {
        /// What is said.
        content: Vec<Content>,
    },
    /// What the model says.
    Assistant {
        /// What is said, then the calls.
        content: Vec<Block>,
        /// Why it ended; none while it is written.
        #[serde(skip_serializing_if = "Option::is_none")]
        stop_reason: Option<StopReason>,
        /// What it cost, where the provider says so.
        #[serde(skip_serializing_if = "Option::is_none")]
        usage: Option<Usage>,
        /// Why there is no whole answer, if there is none.
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<String>,
    },
    /// What came of a call.
    ToolResult {
        /// The call.
        tool_call_id: String,
        /// The tool.
        tool_name: String,
        /// What the model reads.
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
    /// A call.
    ToolCall(CallBlock),
}

/// A call, as a block of the model's message.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename = "toolCall")]
pub struct CallBlock {
    /// Its id.
    pub id: String,
    /// The tool.
    pub name: String,
    /// The arguments as JSON, or as a string where they are none.
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
    /// The model has said all.
    Stop,
    /// It waits for its calls.
    ToolUse,
    /// The limit of tokens.
    Length,
    /// The provider withheld the rest.
    Refusal,
    /// There is no whole answer.
    Error,
    /// The run was cancelled.
    Aborted,
}

/// What was used, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
#[non_exhaustive]
pub struct Usage {
    /// What was sent.
    pub input: u64,
    /// What came back.
    pub output: u64,
    /// Both.
    pub total_tokens: u64,
}

impl Usage {
    /// Adds what a turn cost.
    pub(super) fn add(&mut self, usage: portcullis_agent::Usage) {
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

/// What a run took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[non_exhaustive]
pub struct SessionStats {
    /// How often the model was asked and its answer came to its end.
    pub turns: u32,
    /// Tokens of all turns.
    pub usage: Usage,
}

/// Empty text means no arguments, as everywhere; text that is no JSON stays text.
pub(super) fn arguments_of(text: &str) -> Value {
    if text.trim().is_empty() {
        return json!({});
    }
    serde_json::from_str(text).unwrap_or_else(|_| Value::from(text))
}
