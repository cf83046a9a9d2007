//! The vocabulary of Everruns.
//!
//! A program written for that interface imports the whole vocabulary: `use portcullis_adapters::everruns::*;`.

use std::{error::Error, fmt};

/// The attribute that the trait uses; implementations need it as well.
pub use async_trait::async_trait;
pub use serde_json::Value;
use serde_json::json;

pub use portcullis_types::ToolPolicy;
use portcullis_types::{ToolError, ToolErrorKind, ToolOutput, error_chain};

/// A tool of Everruns. The registry reads the descriptive methods once, at registration, and calls [`Tool::execute`]
/// once for each admitted call.
#[async_trait]
pub trait Tool: Send + Sync {
    /// Returns the name by which a model calls the tool.
    fn name(&self) -> &str;

    /// Returns the description of the tool, for the model.
    fn description(&self) -> &str;

    /// Returns the JSON Schema of the arguments. It describes an object.
    fn parameters_schema(&self) -> Value;

    /// Runs the tool on arguments that fit its schema.
    ///
    /// # Cancellation
    /// The future is dropped at the deadline or when the call is cancelled.
    async fn execute(&self, arguments: Value) -> ToolExecutionResult;

    /// Returns whether a call needs an approval. Default: [`ToolPolicy::Auto`].
    fn policy(&self) -> ToolPolicy {
        ToolPolicy::Auto
    }
}

#[async_trait]
impl<T: Tool + ?Sized> Tool for Box<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    fn parameters_schema(&self) -> Value {
        (**self).parameters_schema()
    }

    async fn execute(&self, arguments: Value) -> ToolExecutionResult {
        (**self).execute(arguments).await
    }

    fn policy(&self) -> ToolPolicy {
        (**self).policy()
    }
}

/// The outcome of a call.
#[derive(Debug)]
pub enum ToolExecutionResult {
    /// The result. The model reads the value.
    Success(Value),
    /// A failure that the model reads, such as `City not found`.
    ToolError(String),
    /// An internal fault. The operator's log gets the cause, and the model reads one fixed sentence.
    InternalError(ToolInternalError),
}

impl ToolExecutionResult {
    /// Creates a result.
    #[must_use]
    pub fn success(value: impl Into<Value>) -> Self {
        Self::Success(value.into())
    }

    /// Creates a failure that the model reads.
    #[must_use]
    pub fn tool_error(message: impl Into<String>) -> Self {
        Self::ToolError(message.into())
    }

    /// Creates an internal error with its cause. The model does not read the cause.
    #[must_use]
    pub fn internal_error(error: impl Error + Send + Sync + 'static) -> Self {
        Self::InternalError(ToolInternalError::new(error))
    }

    /// Creates an internal error with a message. The model does not read the message.
    #[must_use]
    pub fn internal_error_msg(message: impl Into<String>) -> Self {
        Self::InternalError(ToolInternalError::from_message(message))
    }

    /// Returns whether the outcome is a result.
    #[must_use]
    pub fn is_success(&self) -> bool {
        matches!(self, Self::Success(_))
    }

    /// Returns whether the outcome is a failure of either kind.
    #[must_use]
    pub fn is_error(&self) -> bool {
        !self.is_success()
    }

    /// Returns the value that the model reads: the result, or `{"error": "…"}`. The text of an internal error
    /// is always [`ToolError::INTERNAL_MESSAGE`].
    #[must_use]
    pub fn model_value(&self) -> Value {
        match self {
            Self::Success(value) => value.clone(),
            Self::ToolError(message) => json!({ "error": message }),
            Self::InternalError(_) => json!({ "error": ToolError::INTERNAL_MESSAGE }),
        }
    }
}

/// The cause of an internal error, for the operator only.
#[derive(Debug)]
pub struct ToolInternalError {
    message: String,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ToolInternalError {
    /// Wraps an error with its causes.
    #[must_use]
    pub fn new(error: impl Error + Send + Sync + 'static) -> Self {
        Self { message: error.to_string(), source: Some(Box::new(error)) }
    }

    /// Wraps a message.
    #[must_use]
    pub fn from_message(message: impl Into<String>) -> Self {
        Self { message: message.into(), source: None }
    }
}

impl fmt::Display for ToolInternalError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl Error for ToolInternalError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        // The message already repeats the wrapped error, so skip to that error's own source.
        self.source.as_deref().and_then(Error::source)
    }
}

/// A value becomes structured output with its JSON text, a tool's error becomes `failed`, and an internal error
/// becomes `internal`, with all its causes for the operator.
impl From<ToolExecutionResult> for Result<ToolOutput, ToolError> {
    fn from(result: ToolExecutionResult) -> Self {
        match result {
            ToolExecutionResult::Success(value) => Ok(ToolOutput::structured(value)),
            ToolExecutionResult::ToolError(message) => Err(ToolError::failed(message)),
            ToolExecutionResult::InternalError(error) => Err(ToolError::internal(error_chain(&error))),
        }
    }
}

/// Converts any tool's outcome for a program of this interface. Output without structured data becomes its
/// text. Every error except an internal one becomes a tool's error with the message that the model reads.
impl From<Result<ToolOutput, ToolError>> for ToolExecutionResult {
    fn from(outcome: Result<ToolOutput, ToolError>) -> Self {
        match outcome {
            Ok(ToolOutput { structured: Some(value), .. }) => Self::Success(value),
            Ok(output) => Self::Success(output.joined_text().into()),
            Err(error) if error.kind() == ToolErrorKind::Internal => {
                // The detail is never serialized, so it is missing in an error that was deserialized.
                Self::internal_error_msg(error.operator_detail().unwrap_or_default())
            }
            Err(error) => Self::ToolError(error.to_string()),
        }
    }
}

/// Converts a call's result for a program of this interface.
impl From<portcullis_types::ToolResult> for ToolExecutionResult {
    fn from(result: portcullis_types::ToolResult) -> Self {
        result.into_result().into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_survives_a_round_trip() {
        let convert = |result: ToolExecutionResult| -> Result<ToolOutput, ToolError> { result.into() };
        let value = json!({"n": [1, "two"]});
        let output = convert(ToolExecutionResult::success(value.clone())).expect("a result");
        assert_eq!((output.joined_text(), &output.structured), (value.to_string(), &Some(value.clone())));
        assert_eq!(ToolExecutionResult::from(Ok(output)).model_value(), value);

        let error = convert(ToolExecutionResult::tool_error("City not found")).expect_err("an error");
        assert_eq!(error, ToolError::failed("City not found"));
        let converted_back = ToolExecutionResult::from(Err(error));
        assert!(converted_back.is_error());
        assert_eq!(converted_back.model_value(), json!({"error": "City not found"}));
    }

    #[test]
    fn an_internal_error_is_the_operators_with_all_its_causes() {
        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("no connection")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let result = ToolExecutionResult::internal_error(Outer(std::io::Error::other("password is hunter2")));
        assert_eq!(result.model_value(), json!({"error": ToolError::INTERNAL_MESSAGE}));
        let error = Result::<ToolOutput, ToolError>::from(result).expect_err("an error");
        assert_eq!(error.operator_detail(), Some("no connection: password is hunter2"));
        assert!(!error.to_string().contains("hunter2"));
        let converted_back = ToolExecutionResult::from(Err(error));
        assert!(
            matches!(&converted_back, ToolExecutionResult::InternalError(e) if e.to_string().contains("hunter2"))
        );
        assert!(!converted_back.model_value().to_string().contains("hunter2"));
    }
}
