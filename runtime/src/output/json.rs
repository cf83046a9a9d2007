//! Writes answers for programs: one JSON value and a newline, indented on a terminal.

use portcullis_tools::ToolResult;
use portcullis_types::{Content, ToolErrorKind, ToolOutcome};
use serde::Serialize;
use serde_json::Value;

use super::stream;
use crate::error::CliError;

/// Writes one value as the answer.
pub(crate) fn write_output(value: &impl Serialize) -> Result<(), CliError> {
    let layout =
        if stream::stdout_is_terminal() { serde_json::to_string_pretty } else { serde_json::to_string };
    let mut text = layout(value).map_err(|source| CliError::Json { source })?;
    text.push('\n');
    stream::write_output(&text)
}

/// The outcome of a call. Results and errors have the same fields in the same order, which programs rely on.
#[derive(Debug, Serialize)]
pub(crate) struct CallAnswer<'a> {
    call_id: &'a str,
    tool: &'a str,
    is_error: bool,
    /// The content for a model. For a failed call this is the text of its error.
    content: Vec<Content>,
    structured: Option<Value>,
    details: &'a Value,
    error: Option<CallError<'a>>,
    truncated: bool,
    original_bytes: u64,
    duration_us: u64,
    /// The tool's standard error, if requested. It is for the tool's author, never for a model.
    #[serde(skip_serializing_if = "Option::is_none")]
    stderr: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct CallError<'a> {
    kind: ToolErrorKind,
    code: &'a str,
    message: &'a str,
    hint: Option<&'a str>,
}

impl<'a> CallAnswer<'a> {
    pub(crate) fn new(result: &'a ToolResult) -> Self {
        let (content, structured, error) = match &result.outcome {
            ToolOutcome::Output(output) => (output.content.clone(), output.structured.clone(), None),
            ToolOutcome::Pending { .. } => {
                let output = result.outcome.clone().into_result().unwrap_or_default();
                (output.content, output.structured, None)
            }
            ToolOutcome::Error(error) => {
                let error_of = CallError {
                    kind: error.kind(),
                    code: error.code(),
                    message: error.message(),
                    hint: error.hint(),
                };
                (vec![Content::text(result.model_text())], None, Some(error_of))
            }
        };
        Self {
            call_id: &result.call_id,
            tool: &result.tool,
            is_error: error.is_some(),
            content,
            structured,
            details: &result.details,
            error,
            truncated: result.truncated,
            original_bytes: result.original_bytes,
            duration_us: u64::try_from(result.duration.as_micros()).unwrap_or(u64::MAX),
            stderr: None,
        }
    }

    /// Adds the tool's standard error.
    pub(crate) fn with_stderr(mut self, stderr: Option<&'a str>) -> Self {
        self.stderr = stderr;
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use portcullis_types::{ToolError, ToolOutput};
    use serde_json::json;

    use super::*;

    fn result(outcome: Result<ToolOutput, ToolError>) -> ToolResult {
        ToolResult {
            call_id: "call_1".into(),
            tool: "echo".into(),
            outcome: outcome.into(),
            details: json!({"repaired": ["n"]}),
            truncated: false,
            original_bytes: 2,
            duration: Duration::from_micros(42),
        }
    }

    #[track_caller]
    fn check(outcome: Result<ToolOutput, ToolError>, expected: &str) {
        let result = result(outcome);
        assert_eq!(serde_json::to_string(&CallAnswer::new(&result)).expect("encodes"), expected);
    }

    #[test]
    fn a_result_has_exactly_the_fields_of_the_design() {
        let mut output = ToolOutput::text("hi");
        output.structured = Some(json!({"n": 1}));
        check(
            Ok(output),
            r#"{"call_id":"call_1","tool":"echo","is_error":false,"content":[{"type":"text","text":"hi"}],"structured":{"n":1},"details":{"repaired":["n"]},"error":null,"truncated":false,"original_bytes":2,"duration_us":42}"#,
        );
    }

    #[test]
    fn an_error_has_the_same_fields() {
        check(
            Err(ToolError::denied("no").with_code("mount_read_only").with_hint("elsewhere")),
            r#"{"call_id":"call_1","tool":"echo","is_error":true,"content":[{"type":"text","text":"Tool execution failed: no (elsewhere)"}],"structured":null,"details":{"repaired":["n"]},"error":{"kind":"denied","code":"mount_read_only","message":"no","hint":"elsewhere"},"truncated":false,"original_bytes":2,"duration_us":42}"#,
        );
    }
}
