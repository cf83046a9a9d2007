//! Calls whose result comes from outside, perhaps later (specification 003): shapes only, so that the
//! registry and the audit log have room for them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::JsonSchema;

/// The producer of a configured tool's result.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ExecutionType {
    /// An HTTP call.
    Gateway,
    /// A program outside, through an interface.
    External,
    /// A person in a space.
    Space,
    /// None: the arguments are the result.
    Internal,
}

/// The configuration of a tool whose result comes from outside, with the defaults of specification 003
/// ("Fields").
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ConfiguredTool {
    /// The tool's name; it selects the user interface.
    pub name: String,
    /// The description for the model.
    pub description: String,
    /// The schema of its arguments.
    pub input_schema: JsonSchema,
    /// The producer of the result.
    pub execution_type: ExecutionType,
    /// Whether call and result appear in the active space. [`ConfiguredTool::is_visible`] applies the
    /// default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub visible: Option<bool>,
    /// Whether the call answers `pending` at once. Default: false.
    #[serde(default)]
    pub is_async: bool,
    /// The longest wait for a result, in milliseconds. Default: 30 000.
    #[serde(default = "default_timeout_ms")]
    pub timeout: u64,
    /// The target of the call, for [`ExecutionType::Gateway`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub execution: Option<HttpExecution>,
}

impl ConfiguredTool {
    /// Whether call and result appear in the active space: as configured, else yes for all but
    /// [`ExecutionType::Internal`].
    #[must_use]
    pub fn is_visible(&self) -> bool {
        self.visible.unwrap_or(self.execution_type != ExecutionType::Internal)
    }
}

fn default_timeout_ms() -> u64 {
    30_000
}

/// The target of a gateway call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HttpExecution {
    /// The address.
    pub url: String,
    /// The HTTP method.
    #[serde(default = "default_method")]
    pub method: String,
    /// Headers to send.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
}

fn default_method() -> String {
    "POST".to_owned()
}

/// The state of a pending call. `waiting` answers inline, `pending` through the inbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PendingStatus {
    /// The caller is waiting.
    Waiting,
    /// The caller went on; the result will be delivered later.
    Pending,
    /// The result has arrived.
    Resolved,
    /// The result came too late or never.
    Expired,
    /// The caller cancelled the call.
    Cancelled,
}

/// A call that awaits its result from outside.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PendingToolCall {
    /// The call's id, unique.
    pub tool_call_id: String,
    /// The agent that called.
    pub agent_entity_id: String,
    /// The run that the call belongs to.
    pub run_id: String,
    /// The tool's name.
    pub tool_name: String,
    /// The arguments.
    pub args: Value,
    /// Its state.
    pub status: PendingStatus,
    /// The result, once resolved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<Value>,
    /// The expiry time, RFC 3339.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configured_tool_has_the_defaults_of_the_specification() {
        let text = r#"{"name":"t","description":"d","inputSchema":{},"executionType":"space"}"#;
        let tool: ConfiguredTool = serde_json::from_str(text).expect("decodes");
        assert_eq!((tool.is_visible(), tool.is_async, tool.timeout), (true, false, 30_000));
        let internal: ConfiguredTool =
            serde_json::from_str(&text.replace("space", "internal")).expect("decodes");
        assert!(!internal.is_visible());
        assert!(serde_json::from_str::<ConfiguredTool>(&text.replace("space", "webhook")).is_err());
    }
}
