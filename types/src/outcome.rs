//! [`ToolOutcome`]: how a call ended for its caller.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{ToolError, ToolOutput};

/// How a call ended for its caller.
///
/// Exhaustive on purpose: an interface that misses an outcome must not compile.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum ToolOutcome {
    /// The tool's output.
    #[serde(rename = "Ok")]
    Output(ToolOutput),
    /// The call was refused, or it failed.
    #[serde(rename = "Err")]
    Error(ToolError),
    /// The result is submitted later, from outside. The run continues without it and gets it as a message.
    #[serde(rename = "pending")]
    Pending {
        /// The id under which the result is submitted, unique in the store of runs.
        id: String,
        /// When the call expires, in milliseconds since the Unix epoch. After that, no result is accepted.
        expires: i64,
    },
}

impl ToolOutcome {
    /// The output, if there is one.
    #[must_use]
    pub fn output(&self) -> Option<&ToolOutput> {
        match self {
            Self::Output(output) => Some(output),
            Self::Error(_) | Self::Pending { .. } => None,
        }
    }

    /// The error, if the call was refused or failed.
    #[must_use]
    pub fn error(&self) -> Option<&ToolError> {
        match self {
            Self::Error(error) => Some(error),
            Self::Output(_) | Self::Pending { .. } => None,
        }
    }

    /// Whether there is an output.
    #[must_use]
    pub fn is_output(&self) -> bool {
        self.output().is_some()
    }

    /// Whether the call was refused or failed.
    #[must_use]
    pub fn is_error(&self) -> bool {
        self.error().is_some()
    }

    /// Returns the outcome for an interface that supports only outputs and errors. A pending call becomes the
    /// output `{"status":"pending","pendingToolCallId":ID}`.
    ///
    /// # Errors
    /// The call's error.
    pub fn into_result(self) -> Result<ToolOutput, ToolError> {
        match self {
            Self::Output(output) => Ok(output),
            Self::Error(error) => Err(error),
            Self::Pending { id, .. } => Ok(pending_output(&id)),
        }
    }

    /// Changes the error, if the outcome is one.
    #[must_use]
    pub fn map_error(self, change: impl FnOnce(ToolError) -> ToolError) -> Self {
        match self {
            Self::Error(error) => Self::Error(change(error)),
            other => other,
        }
    }
}

impl From<Result<ToolOutput, ToolError>> for ToolOutcome {
    fn from(result: Result<ToolOutput, ToolError>) -> Self {
        match result {
            Ok(output) => Self::Output(output),
            Err(error) => Self::Error(error),
        }
    }
}

/// Returns a pending call as an output. Specification 003 defines the names of the fields.
pub(crate) fn pending_output(id: &str) -> ToolOutput {
    ToolOutput::structured(json!({"status": "pending", "pendingToolCallId": id}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_written_and_read_again() {
        for (outcome, tag) in [
            (ToolOutcome::Output(ToolOutput::text("x")), "Ok"),
            (ToolOutcome::Error(ToolError::denied("no")), "Err"),
            (ToolOutcome::Pending { id: "call_1".into(), expires: 7 }, "pending"),
        ] {
            let json = serde_json::to_value(&outcome).expect("encodes");
            assert!(json.get(tag).is_some(), "{json}");
            assert_eq!(serde_json::from_value::<ToolOutcome>(json).expect("decodes"), outcome);
        }
    }

    #[test]
    fn a_pending_call_can_be_converted_to_an_output() {
        let pending = ToolOutcome::Pending { id: "call_1".into(), expires: 7 };
        assert!(!pending.is_output() && !pending.is_error());
        let output = pending.into_result().expect("an output");
        assert_eq!(output.joined_text(), r#"{"pendingToolCallId":"call_1","status":"pending"}"#);
        assert!(output.structured.is_some());
    }
}
