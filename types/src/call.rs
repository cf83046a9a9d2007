//! A call as a front end makes it, and its result. `outcome.rs` has the outcome inside the result.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ToolError, ToolOutcome, ToolOutput, outcome::pending_output};

/// One tool call, as a model requested it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's id. A provider may have chosen it, so it need not be unique.
    pub id: String,
    /// The tool's name, even if the call used an alias. If there is no such tool, the name as requested.
    pub tool: String,
    /// The JSON text of the arguments, as given. Empty text means `{}`.
    pub arguments: String,
}

/// The result of a call. The call's audit row is written before a caller sees the result.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ToolResult {
    /// The call's id.
    pub call_id: String,
    /// The tool's name, even if the call used an alias. If there is no such tool, the name as requested.
    pub tool: String,
    /// The output, the error, or the promise of a later result. The `details` of the output are moved to
    /// [`ToolResult::details`].
    pub outcome: ToolOutcome,
    /// Details for people and logs: the tool's own, and the host's `repaired`, `ignored`, `output_id`, `hooked`,
    /// `tries`, `rest` and `withheld`. A model never sees them, except through [`ToolResult::rest_hint`].
    pub details: Value,
    /// Whether a part of the result is missing: text was truncated, or a block or data was omitted
    /// because of its length.
    pub truncated: bool,
    /// The size of the whole result before truncation, in bytes: content of every kind, data, and the details
    /// of a foreign tool.
    pub original_bytes: u64,
    /// The time from the request to the audit row, without the wait for an approver. Serialized as whole microseconds.
    #[serde(rename = "duration_us", with = "crate::micros")]
    pub duration: Duration,
}

impl ToolResult {
    /// Returns the result of a call that did not run.
    #[must_use]
    pub fn without_run(call: ToolCall, error: ToolError) -> Self {
        Self {
            call_id: call.id,
            tool: call.tool,
            outcome: ToolOutcome::Error(error),
            details: serde_json::Value::Null,
            truncated: false,
            original_bytes: 0,
            duration: Duration::ZERO,
        }
    }

    /// Returns the text for a model: the output's text, `Tool execution failed: …`, or the JSON of
    /// [`ToolOutcome::Pending`].
    #[must_use]
    pub fn model_text(&self) -> String {
        match &self.outcome {
            ToolOutcome::Output(output) => output.joined_text(),
            ToolOutcome::Error(error) => error.for_model(),
            ToolOutcome::Pending { id, .. } => pending_output(id).joined_text(),
        }
    }

    /// Returns the outcome for an interface that supports only outputs and errors.
    ///
    /// # Errors
    /// As for [`ToolOutcome::into_result`].
    pub fn into_result(self) -> Result<ToolOutput, ToolError> {
        self.outcome.into_result()
    }

    /// Tells a model how to read the rest of a truncated output. For a page of a stored output: which page it
    /// is, and where the next one starts. For a part of a file: how far the stored part goes. `None` if
    /// nothing is missing.
    ///
    /// The hint identifies the stored output by `output_id`, because a model knows only its
    /// provider's call id.
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
            outcome: ToolOutcome::Output(ToolOutput::text("yes")),
            details: serde_json::json!({"n": 1}),
            original_bytes: 3,
            duration: Duration::from_micros(1_500),
            ..refused.clone()
        };
        for result in [refused, done] {
            let json = serde_json::to_string(&result).expect("encodes");
            assert_eq!(serde_json::from_str::<ToolResult>(&json).expect("decodes"), result);
        }
    }
}
