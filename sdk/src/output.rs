//! The types that a tool function may return.

use portcullis_types::{ToolError, ToolOutput};
use schemars::JsonSchema;
use serde::Serialize;

/// A result of a tool function: `()`, a text, a [`ToolOutput`], a [`Json`], or a `Result` of these. A function may
/// also return a type that is only `Serialize`, as data without a schema.
#[diagnostic::on_unimplemented(
    message = "a tool cannot return `{Self}`",
    label = "not a tool's result",
    note = "return `()`, `String`, `ToolOutput`, data that is `Serialize`, `Json` of data with a schema, or a `Result` of one of these"
)]
pub trait IntoToolOutput {
    /// Converts the result.
    ///
    /// # Errors
    /// The function's own error, or the failure to write the result as JSON.
    fn into_tool_output(self) -> Result<ToolOutput, ToolError>;
}

/// A result as data with a schema. The tool declares the schema. Callers that support data get the value, and
/// a model reads the value's JSON text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Json<T>(pub T);

/// Data whose schema a tool can declare. [`macro@crate::args`] implements this trait.
#[diagnostic::on_unimplemented(
    message = "a tool cannot declare what it returns: `{Self}` has no schema",
    label = "has no schema",
    note = "put `#[portcullis_sdk::args]` on the definition of `{Self}`, or return it without `Json`"
)]
pub trait DescribedData: Serialize + JsonSchema {}

#[diagnostic::do_not_recommend]
impl<T: Serialize + JsonSchema> DescribedData for T {}

/// An error that a tool can report. The model reads the message of a [`ToolError`]. Of any other error the model
/// reads only one generic sentence, and the operator reads the text.
#[diagnostic::on_unimplemented(
    message = "a tool cannot report the error `{Self}`",
    label = "not an error of a tool",
    note = "implement `From<{Self}> for ToolError` to choose what the model reads, or `std::error::Error` to let it read nothing"
)]
pub trait ToolFailure {
    /// Converts the error to the tool's error.
    fn into_tool_error(self) -> ToolError;
}

#[diagnostic::do_not_recommend]
impl<E: Into<ToolError>> ToolFailure for E {
    fn into_tool_error(self) -> ToolError {
        self.into()
    }
}

/// Converts an empty result to an output without content.
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
    fn unserializable_output_is_an_internal_error() {
        let map = std::collections::BTreeMap::from([((1, 2), 3)]);
        let error = Json(map).into_tool_output().expect_err("tuples are not keys");
        assert_eq!(error.message(), ToolError::INTERNAL_MESSAGE);
    }
}
