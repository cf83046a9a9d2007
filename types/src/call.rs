//! A call as a front end makes it, and what comes back.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{ToolError, ToolOutput};

/// One tool call, as a model asked for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ToolCall {
    /// The call's id. A provider may have chosen it, so nothing is derived from it.
    pub id: String,
    /// The tool's name; where it was called by an alias, its own. As asked for, if there is no such tool.
    pub tool: String,
    /// The JSON text of the arguments, as given. Empty text means `{}`.
    pub arguments: String,
}

/// What a call gives back. Its audit row is on record when a caller sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResult {
    /// The call.
    pub call_id: String,
    /// The tool's name; where it was called by an alias, its own. As asked for, if there is no such tool.
    pub tool: String,
    /// The result, or why there is none. Its `details` are moved to [`ToolResult::details`].
    pub outcome: Result<ToolOutput, ToolError>,
    /// For people and logs: what the tool says beside its result, and what the host adds: `repaired`,
    /// `ignored`, `output_id`, `rest`, `withheld`. Never for a model, but for [`ToolResult::rest_hint`].
    pub details: Value,
    /// Whether something of the result is not here: text was cut, or a block or data left out for its length.
    pub truncated: bool,
    /// The size of the whole result before anything was cut, in bytes: content of every kind, data, and what a
    /// tool from outside says in its details.
    pub original_bytes: u64,
    /// From the request to the row, without the wait for an approver.
    pub duration: Duration,
}

impl ToolResult {
    /// The result of a call that was not run.
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

    /// The text that a model reads: the result, or `Tool execution failed: …`.
    #[must_use]
    pub fn model_text(&self) -> String {
        match &self.outcome {
            Ok(output) => output.joined_text(),
            Err(error) => error.for_model(),
        }
    }

    /// How a model reads the rest of an output that was cut, in words of its own beside the text: it knows no
    /// other id of the call than its own. Beside a page of a stored output: which page it is, and where the next
    /// one begins. Where the output itself is a part of a file: how far what is kept goes. None where all of it is
    /// there.
    #[must_use]
    pub fn rest_hint(&self) -> Option<String> {
        if let Some(rest) = self.details["rest"].as_str() {
            return Some(rest.to_owned());
        }
        let id = self.details["output_id"].as_str().filter(|_| self.truncated)?;
        Some(format!("[the whole output: `output_read` with `call_id` \"{id}\"]"))
    }
}
