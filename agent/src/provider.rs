//! [`Provider`]: the request to a model, and the pieces of its response.

use std::{error::Error, fmt, pin::Pin, sync::Arc};

use futures_util::Stream;
use portcullis_types::{CancellationToken, FunctionDecl, Message, async_trait};
use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The stream of a model's response. It ends with [`Delta::End`] or an error. A stream that ends with neither
/// was cut off, and its reader must treat the response as incomplete.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta, ProviderError>> + Send>>;

/// A provider: answers requests for a model.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Requests one turn, and returns the stream of its pieces.
    ///
    /// # Errors
    /// [`ProviderError`] if there is no response at all. A response that breaks off is reported as an error of
    /// the stream.
    ///
    /// # Cancellation
    /// Dropping the future or the stream, or firing `request.cancel`, ends the request.
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError>;
}

#[async_trait]
impl<P: Provider + ?Sized> Provider for Arc<P> {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        (**self).stream(request).await
    }
}

#[async_trait]
impl<P: Provider + ?Sized> Provider for Box<P> {
    async fn stream(&self, request: ModelRequest) -> Result<DeltaStream, ProviderError> {
        (**self).stream(request).await
    }
}

/// The request for one turn.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The model's name, as the provider knows it; empty means the provider's own default.
    pub model: String,
    /// The conversation so far, the operator's instructions first.
    pub messages: Vec<Message>,
    /// The tools that the model may call, by name.
    pub tools: Vec<FunctionDecl>,
    /// The maximum length of the response, in tokens. Default: the provider's.
    pub max_tokens: Option<u32>,
    /// Sampling temperature, 0 to 2. Default: the provider's.
    pub temperature: Option<f64>,
    /// Fires when the response is no longer wanted.
    pub cancel: CancellationToken,
}

/// A piece of a model's response.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// More of the text.
    Text(String),
    /// More of the model's thinking; never sent back.
    Thinking(String),
    /// More of a call.
    ToolCall(ToolCallDelta),
    /// The turn's token counts so far. Each value replaces the previous one.
    Usage(Usage),
    /// The response is complete. No delta follows.
    End(StopReason),
}

/// A piece of a call. Providers send pieces in any order: the id late or repeatedly, the name in parts,
/// several calls interleaved.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallDelta {
    /// The number of the call in the turn, counted from 0. Providers leave gaps.
    pub index: u64,
    /// The call's id.
    pub id: Option<String>,
    /// More of the tool's name.
    pub name: Option<String>,
    /// More of the arguments' text.
    pub arguments: Option<String>,
}

/// Why a response ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model is done.
    Stop,
    /// The model waits for the results of its calls.
    ToolCalls,
    /// The token limit was reached: the last piece may be cut off.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// An unknown reason, as the provider spells it.
    Other(String),
}

/// Tokens of a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Tokens of the request.
    pub input_tokens: u64,
    /// Tokens of the response.
    pub output_tokens: u64,
}

/// Kind of failure of a [`ProviderError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The provider cannot be asked with these settings: no key, no such model, an invalid address.
    Configuration,
    /// There was no connection, or it broke before or during the response.
    Transport,
    /// The provider refused the key or the permission.
    Unauthorized,
    /// The provider got too many requests.
    RateLimited,
    /// The provider refused the request as wrong.
    Rejected,
    /// The provider failed on its side.
    Server,
    /// The response does not follow the protocol.
    Malformed,
    /// The response broke off before its end.
    Incomplete,
    /// The request was cancelled.
    Cancelled,
}

/// Why there is no answer, or no complete one.
#[derive(Debug, Error)]
#[error("{message}")]
pub struct ProviderError {
    kind: ProviderErrorKind,
    message: String,
    status: Option<u16>,
    #[source]
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl ProviderError {
    /// Creates an error of a kind, with a message for the operator. The message must not contain a key.
    #[must_use]
    pub fn new(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, source: None }
    }

    /// Adds the cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Adds the HTTP status of the provider's response.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Returns the HTTP status of the provider's response, if the status was the failure.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// Returns the kind of failure.
    #[must_use]
    pub fn kind(&self) -> ProviderErrorKind {
        self.kind
    }
}

impl fmt::Display for ProviderErrorKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Configuration => "configuration",
            Self::Transport => "transport",
            Self::Unauthorized => "unauthorized",
            Self::RateLimited => "rate_limited",
            Self::Rejected => "rejected",
            Self::Server => "server",
            Self::Malformed => "malformed",
            Self::Incomplete => "incomplete",
            Self::Cancelled => "cancelled",
        })
    }
}
