//! A call as a front end makes it, and its result.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ToolError, ToolOutput};

/// One tool call, as a model requested it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's id. A provider may have chosen it, so nothing is derived from it.
    pub id: String,
    /// The tool's name, also where the call used an alias; as requested if there is no such tool.
    pub tool: String,
    /// The JSON text of the arguments, as given. Empty text means `{}`.
    pub arguments: String,
}

/// The result of a call. Its audit row is written before a caller sees it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub call_id: String,
    /// The tool's name, also where the call used an alias; as requested if there is no such tool.
    pub tool: String,
    /// The result, or the error. The `details` of a result are moved to [`ToolResult::details`].
    pub outcome: Result<ToolOutput, ToolError>,
    /// Details for people and logs: the tool's own, and those of the host: `repaired`, `ignored`,
    /// `output_id`, `rest`, `withheld`. A model never sees them, except through [`ToolResult::rest_hint`].
    pub details: Value,
    /// Whether something of the result is missing: text was cut, or a block or data left out for its length.
    pub truncated: bool,
    /// The size of the whole result before anything was cut, in bytes: content of every kind, data, and
    /// details of a foreign tool.
    pub original_bytes: u64,
    /// The time from the request to the row, without the wait for an approver; written as whole microseconds.
    #[serde(rename = "duration_us", with = "crate::micros")]
    pub duration: Duration,
}

impl ToolResult {
    /// The result of a call that did not run.
    #[must_use]
    pub fn without_run(call: ToolCall, error: ToolError) -> Self {
        Self {
            call_id: call.id,
            tool: call.tool,
            outcome: Err(error),
            details: serde_json::Value::Null,
            truncated: false,
            original_bytes: 0,
            duration: Duration::ZERO,
        }
    }

    /// The text for a model: the result, or `Tool execution failed: …`.
    #[must_use]
    pub fn model_text(&self) -> String {
        match &self.outcome {
            Ok(output) => output.joined_text(),
            Err(error) => error.for_model(),
        }
    }

    /// Tells a model how to read the rest of a cut output, in separate text, since a model knows only its own
    /// id of the call. For a page of a stored output: which page it is, and where the next one begins. For a
    /// part of a file: how far the stored part goes. None if nothing is missing.
    #[must_use]
    pub fn rest_hint(&self) -> Option<String> {
        if let Some(rest) = self.details["rest"].as_str() {
            return Some(rest.to_owned());
        }
        let id = self.details["output_id"].as_str().filter(|_| self.truncated)?;
        Some(format!("[the whole output: `output_read` with `call_id` \"{id}\"]"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_is_written_and_read_again() {
        let call = ToolCall { id: "c".into(), tool: "t".into(), arguments: "{}".into() };
        let refused = ToolResult::without_run(call, ToolError::denied("no"));
        let done = ToolResult {
            outcome: Ok(ToolOutput::text("yes")),
            details: serde_json::json!({"n": 1}),
            original_bytes: 3,
            duration: Duration::from_micros(1_500),
            ..refused.clone()
        };
        for result in [refused, done] {
            let written = serde_json::to_string(&result).expect("encodes");
            assert_eq!(serde_json::from_str::<ToolResult>(&written).expect("decodes"), result);
        }
    }
}
