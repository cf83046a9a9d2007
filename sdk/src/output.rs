//! What a tool function may return.

use portcullis_types::{ToolError, ToolOutput};
use serde::Serialize;

/// A result of a tool function: `()`, a text, a [`ToolOutput`], a [`Json`], or a `Result` of these.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "not a tool's result",
    note = "return `String`, `()`, `ToolOutput`, `Json<T>` with `T: Serialize`, or a `Result` of one of these whose error converts into `ToolError`"
)]
pub trait IntoToolOutput {
    /// Converts the result.
    ///
    /// # Errors
    /// The function's own error, or what kept the result from being written as JSON.
    fn into_tool_output(self) -> Result<ToolOutput, ToolError>;
}

/// A result as data: callers that can use data get it as such, a model reads its JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// Nothing to say: an output without content.
impl IntoToolOutput for () {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::default())
    }
}

impl IntoToolOutput for String {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for &str {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::text(self))
    }
}

impl IntoToolOutput for ToolOutput {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(self)
    }
}

impl<T: Serialize> IntoToolOutput for Json<T> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        Ok(ToolOutput::structured(serde_json::to_value(self.0)?))
    }
}

impl<T: IntoToolOutput, E: Into<ToolError>> IntoToolOutput for Result<T, E> {
    fn into_tool_output(self) -> Result<ToolOutput, ToolError> {
        self.map_err(Into::into)?.into_tool_output()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(result: impl IntoToolOutput, text: &str) {
        assert_eq!(result.into_tool_output().expect("a result").joined_text(), text);
    }

    #[test]
    fn every_result_becomes_an_output() {
        check((), "");
        check("static", "static");
        check(String::from("owned"), "owned");
        check(ToolOutput::text("output"), "output");
        check(Json(json!({"n": 1})), r#"{"n":1}"#);
        check(Ok::<_, ToolError>("fine"), "fine");
        let error = Err::<(), _>("broken").into_tool_output().expect_err("an error");
        assert_eq!(error, ToolError::failed("broken"));
    }

    #[test]
    fn what_json_cannot_hold_is_an_internal_error() {
        let map = std::collections::BTreeMap::from([((1, 2), 3)]);
        let error = Json(map).into_tool_output().expect_err("tuples are no keys");
        assert_eq!(error.message(), ToolError::INTERNAL_MESSAGE);
    }
}
