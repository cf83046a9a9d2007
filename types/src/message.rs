//! Messages of a conversation, as far as tool results need them.

use serde::{Deserialize, Serialize};

use crate::ToolError;

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MessageRole {
    /// The operator's instructions.
    System,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// A tool's result.
    Tool,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Who speaks.
    pub role: MessageRole,
    /// What is said.
    pub content: String,
    /// Which call a tool's message answers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tool_call_id: Option<String>,
}

impl Message {
    /// The message that tells a model of a failed call (specification 004, "Validation and
    /// Self-Correction"): `Tool execution failed: …`.
    #[must_use]
    pub fn tool_failure(tool_call_id: impl Into<String>, error: &ToolError) -> Self {
        Self {
            role: MessageRole::Tool,
            content: format!("Tool execution failed: {error}"),
            tool_call_id: Some(tool_call_id.into()),
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
        assert_eq!(message.content, "Tool execution failed: missing required field 'path' in arguments");
    }
}
