//! The vocabulary of Yoagent.
//!
//! A program written for that interface finds the vocabulary as `yoagent::types` after
//! `use portcullis_adapters::yoagent;`.

use std::{fmt, sync::Arc};

/// The attribute that the trait uses; implementations need it as well.
pub use async_trait::async_trait;
/// The type of [`ToolContext::cancel`].
pub use tokio_util::sync::CancellationToken;

pub use portcullis_types::{Content, ProgressFn};
use portcullis_types::{ToolErrorKind, ToolOutput};

/// A tool of Yoagent. The registry reads the descriptive methods once, at registration, and calls
/// [`AgentTool::execute`] once for each admitted call.
#[async_trait]
pub trait AgentTool: Send + Sync {
    /// Returns the name by which a model calls the tool.
    fn name(&self) -> &str;

    /// Returns a name for people.
    fn label(&self) -> &str;

    /// Returns the description of the tool, for the model.
    fn description(&self) -> &str;

    /// Returns the JSON Schema of the arguments. It describes an object.
    fn parameters_schema(&self) -> serde_json::Value;

    /// Runs the tool on arguments that fit its schema.
    ///
    /// # Errors
    /// The tool's error, which the model reads.
    ///
    /// # Cancellation
    /// The future is dropped at the deadline or when the call is cancelled. `ctx.cancel` is cancelled
    /// earlier.
    async fn execute(&self, params: serde_json::Value, ctx: ToolContext) -> Result<ToolResult, ToolError>;

    /// Returns whether this value is a placeholder of the shipped tool with its name. An agent registers
    /// the shipped tool instead, so a custom tool gains nothing by returning `true`.
    #[doc(hidden)]
    fn stands_for_shipped(&self) -> bool {
        false
    }
}

#[async_trait]
impl<T: AgentTool + ?Sized> AgentTool for Box<T> {
    fn name(&self) -> &str {
        (**self).name()
    }

    fn label(&self) -> &str {
        (**self).label()
    }

    fn description(&self) -> &str {
        (**self).description()
    }

    fn parameters_schema(&self) -> serde_json::Value {
        (**self).parameters_schema()
    }

    async fn execute(&self, params: serde_json::Value, ctx: ToolContext) -> Result<ToolResult, ToolError> {
        (**self).execute(params, ctx).await
    }

    fn stands_for_shipped(&self) -> bool {
        (**self).stands_for_shipped()
    }
}

/// The context of a call, for its tool. A tool must also work without listeners.
#[derive(Clone)]
pub struct ToolContext {
    /// The call's id.
    pub tool_call_id: String,
    /// The name that the tool is registered under.
    pub tool_name: String,
    /// Cancelled when the call is cancelled.
    pub cancel: CancellationToken,
    /// Receives partial results, if there is a listener.
    pub on_update: Option<ToolUpdateFn>,
    /// Receives progress texts, if there is a listener.
    pub on_progress: Option<ProgressFn>,
}

impl fmt::Debug for ToolContext {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ToolContext")
            .field("tool_call_id", &self.tool_call_id)
            .field("tool_name", &self.tool_name)
            .finish_non_exhaustive()
    }
}

/// Keeps the call's ids and cancellation, and converts partial results for the listener.
impl From<&portcullis_types::ToolContext> for ToolContext {
    fn from(ctx: &portcullis_types::ToolContext) -> Self {
        let on_update = ctx
            .on_update
            .clone()
            .map(|listener| -> ToolUpdateFn { Arc::new(move |partial| listener(partial.into())) });
        Self {
            tool_call_id: ctx.call_id.clone(),
            tool_name: ctx.tool_name.clone(),
            cancel: ctx.cancel.clone(),
            on_update,
            on_progress: ctx.on_progress.clone(),
        }
    }
}

/// A callback for partial results of a running tool. It is called synchronously. A model never reads these
/// results.
pub type ToolUpdateFn = Arc<dyn Fn(ToolResult) + Send + Sync>;

/// The result of a call.
#[derive(Debug, Clone, PartialEq, Default, serde::Serialize)]
pub struct ToolResult {
    /// The content that the model reads.
    pub content: Vec<Content>,
    /// Details for logs and user interfaces only.
    pub details: serde_json::Value,
}

impl From<ToolResult> for ToolOutput {
    fn from(ToolResult { content, details }: ToolResult) -> Self {
        Self { content, details, structured: None }
    }
}

impl From<ToolOutput> for ToolResult {
    fn from(ToolOutput { content, details, .. }: ToolOutput) -> Self {
        Self { content, details }
    }
}

/// Why a call has no result. The model reads the whole error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ToolError {
    /// The tool failed.
    Failed(String),
    /// The requested object does not exist.
    NotFound(String),
    /// The arguments do not fit the tool.
    InvalidArgs(String),
    /// The call was cancelled.
    Cancelled,
}

impl fmt::Display for ToolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Failed(message) | Self::NotFound(message) | Self::InvalidArgs(message) => message,
            Self::Cancelled => CANCELLED,
        })
    }
}

impl std::error::Error for ToolError {}

impl From<ToolError> for portcullis_types::ToolError {
    fn from(error: ToolError) -> Self {
        match error {
            ToolError::Failed(message) => Self::failed(message),
            ToolError::NotFound(message) => Self::not_found(message),
            ToolError::InvalidArgs(message) => Self::invalid_arguments(message),
            ToolError::Cancelled => Self::cancelled(CANCELLED),
        }
    }
}

/// Kinds that this interface lacks become failures with the message that the model reads. For an internal
/// error, that is the fixed sentence.
impl From<&portcullis_types::ToolError> for ToolError {
    fn from(error: &portcullis_types::ToolError) -> Self {
        match error.kind() {
            ToolErrorKind::Cancelled => Self::Cancelled,
            ToolErrorKind::NotFound => Self::NotFound(error.to_string()),
            ToolErrorKind::InvalidArguments => Self::InvalidArgs(error.to_string()),
            _ => Self::Failed(error.to_string()),
        }
    }
}

/// The message for the model's context after a call. It contains the result, or an error's message with
/// `is_error` set, so that the model can correct itself.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolResultMessage {
    /// The call's id.
    pub tool_call_id: String,
    /// The tool's name as requested.
    pub tool_name: String,
    /// The content that the model reads.
    pub content: Vec<Content>,
    /// Whether the content is an error.
    pub is_error: bool,
}

impl ToolResultMessage {
    /// Creates the message for an outcome.
    #[must_use]
    pub fn new(
        tool_call_id: impl Into<String>,
        tool_name: impl Into<String>,
        outcome: Result<ToolResult, ToolError>,
    ) -> Self {
        let (content, is_error) = match outcome {
            Ok(result) => (result.content, false),
            Err(error) => (vec![Content::text(error.to_string())], true),
        };
        Self { tool_call_id: tool_call_id.into(), tool_name: tool_name.into(), content, is_error }
    }
}

/// Converts a call's result into the message for the model's context.
impl From<portcullis_types::ToolResult> for ToolResultMessage {
    fn from(result: portcullis_types::ToolResult) -> Self {
        let outcome = match result.outcome.into_result() {
            Ok(output) => Ok(output.into()),
            Err(error) => Err((&error).into()),
        };
        Self::new(result.call_id, result.tool, outcome)
    }
}

/// The message of [`ToolError::Cancelled`].
const CANCELLED: &str = "the call was cancelled";

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use serde_json::json;

    use super::*;

    #[test]
    fn each_error_survives_a_round_trip() {
        for error in [
            ToolError::Failed("f".into()),
            ToolError::NotFound("n".into()),
            ToolError::InvalidArgs("i".into()),
            ToolError::Cancelled,
        ] {
            let shared_error = portcullis_types::ToolError::from(error.clone());
            assert_eq!(shared_error.to_string(), error.to_string());
            assert_eq!(ToolError::from(&shared_error), error);
        }
        let internal = ToolError::from(&portcullis_types::ToolError::internal("password is hunter2"));
        assert_eq!(internal, ToolError::Failed(portcullis_types::ToolError::INTERNAL_MESSAGE.to_owned()));
    }

    #[test]
    fn the_context_hands_on_updates_progress_and_cancellation() {
        let mut shared_context = portcullis_types::ToolContext::detached("t");
        shared_context.call_id = "c".into();
        let quiet_context = ToolContext::from(&shared_context);
        assert!(quiet_context.on_update.is_none() && quiet_context.on_progress.is_none());

        let received = Arc::new(Mutex::new(Vec::new()));
        let (updates, texts) = (Arc::clone(&received), Arc::clone(&received));
        shared_context.on_update = Some(Arc::new(move |partial| {
            updates.lock().expect("not poisoned").push((partial.joined_text(), partial.details));
        }));
        shared_context.on_progress =
            Some(Arc::new(move |text| texts.lock().expect("not poisoned").push((text, json!(null)))));
        let ctx = ToolContext::from(&shared_context);
        assert_eq!((ctx.tool_call_id.as_str(), ctx.tool_name.as_str()), ("c", "t"));
        let partial = ToolResult { content: vec![Content::text("half")], details: json!({"step": 1}) };
        ctx.on_update.expect("somebody listens")(partial);
        ctx.on_progress.expect("somebody listens")("more".into());
        let expected = [("half".to_owned(), json!({"step": 1})), ("more".to_owned(), json!(null))];
        assert_eq!(*received.lock().expect("not poisoned"), expected);
        shared_context.cancel.cancel();
        assert!(ctx.cancel.is_cancelled());
    }

    #[test]
    fn an_error_is_a_message_that_says_so() {
        let message = ToolResultMessage::new("c", "t", Err(ToolError::NotFound("no such file".into())));
        assert_eq!((message.content, message.is_error), (vec![Content::text("no such file")], true));
        let message = ToolResultMessage::new("c", "t", Ok(ToolOutput::text("done").into()));
        assert_eq!((message.content, message.is_error), (vec![Content::text("done")], false));
    }
}
