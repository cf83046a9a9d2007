//! The messages of a conversation between a person, a model and tools.

use serde::{Deserialize, Serialize};

use crate::{Content, ToolCall, ToolError, ToolOutcome, ToolResult};

/// The author of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The operator's instructions.
    System,
    /// The person's prompt.
    User,
    /// The model's answer, which may request calls.
    Assistant,
    /// A tool's result.
    Tool,
}

/// One message of a conversation.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Message {
    /// The author of the message.
    pub role: MessageRole,
    /// The content, in order.
    pub content: Vec<Content>,
    /// The calls that the model requests, in the model's order; only for [`MessageRole::Assistant`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<ToolCall>,
    /// The id of the call that the message answers; only for [`MessageRole::Tool`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
    /// Whether the call failed; only for [`MessageRole::Tool`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_error: bool,
}

impl Message {
    /// Creates the operator's instructions.
    #[must_use]
    pub fn system(text: impl Into<String>) -> Self {
        Self::new(MessageRole::System, text)
    }

    /// Creates a message of the person.
    #[must_use]
    pub fn user(text: impl Into<String>) -> Self {
        Self::new(MessageRole::User, text)
    }

    /// Creates a message of the model, with the calls that it requests. Empty text adds no content.
    #[must_use]
    pub fn assistant(text: impl Into<String>, tool_calls: Vec<ToolCall>) -> Self {
        let mut message = Self::new(MessageRole::Assistant, text);
        message.content.retain(|content| content.as_text() != Some(""));
        Self { tool_calls, ..message }
    }

    /// Creates a message for a model from the result of a call: the content, or `Tool execution failed: …`.
    /// If the content was truncated, a hint tells how to read the rest.
    #[must_use]
    pub fn tool_result(result: &ToolResult) -> Self {
        match &result.outcome {
            ToolOutcome::Output(output) => Self {
                content: output
                    .content
                    .iter()
                    .cloned()
                    .chain(result.rest_hint().map(Content::text))
                    .collect(),
                tool_call_id: Some(result.call_id.clone()),
                ..Self::new(MessageRole::Tool, "")
            },
            ToolOutcome::Error(error) => Self::tool_failure(result.call_id.clone(), error),
            ToolOutcome::Pending { .. } => Self {
                tool_call_id: Some(result.call_id.clone()),
                ..Self::new(MessageRole::Tool, result.model_text())
            },
        }
    }

    /// Creates a message for a model from the failure of a call: `Tool execution failed: …`.
    #[must_use]
    pub fn tool_failure(tool_call_id: impl Into<String>, error: &ToolError) -> Self {
        Self {
            tool_call_id: Some(tool_call_id.into()),
            is_error: true,
            ..Self::new(MessageRole::Tool, error.for_model())
        }
    }

    /// Returns all text blocks, joined by newlines.
    #[must_use]
    pub fn text(&self) -> String {
        let texts: Vec<&str> = self.content.iter().filter_map(Content::as_text).collect();
        texts.join("\n")
    }

    fn new(role: MessageRole, text: impl Into<String>) -> Self {
        Self {
            role,
            content: vec![Content::text(text)],
            tool_calls: Vec::new(),
            tool_call_id: None,
            is_error: false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_reads_as_the_specification_prints_it() {
        let error = ToolError::invalid_arguments("missing required field 'path' in arguments");
        let message = Message::tool_failure("call-1", &error);
        assert_eq!(message.role, MessageRole::Tool);
        assert_eq!(message.text(), "Tool execution failed: missing required field 'path' in arguments");
        assert!(message.is_error);
    }

    #[test]
    fn a_result_that_was_cut_says_how_to_read_the_rest() {
        let mut result = ToolResult {
            call_id: "c".into(),
            tool: "t".into(),
            outcome: ToolOutcome::Output(crate::ToolOutput::text("beginning")),
            details: serde_json::json!({"output_id": "out_1"}),
            truncated: false,
            original_bytes: 9,
            duration: std::time::Duration::ZERO,
        };
        assert_eq!(Message::tool_result(&result).text(), "beginning");
        result.truncated = true;
        let hint = "[the whole output: `output_read` with `call_id` \"out_1\"]";
        assert_eq!(Message::tool_result(&result).text(), format!("beginning\n{hint}"));
    }

    #[test]
    fn a_message_has_in_json_what_its_role_needs() {
        let call = ToolCall { id: "c".into(), tool: "t".into(), arguments: "{}".into() };
        let call_json = serde_json::to_value(Message::assistant("", vec![call])).expect("serializes");
        assert_eq!(
            call_json,
            serde_json::json!({
                "role": "assistant",
                "content": [],
                "tool_calls": [{"id": "c", "tool": "t", "arguments": "{}"}],
            })
        );
        let user_message = Message::user("hello");
        let decoded: Message =
            serde_json::from_str(r#"{"role":"user","content":[{"type":"text","text":"hello"}]}"#)
                .expect("reads");
        assert_eq!(decoded, user_message);
    }
}
