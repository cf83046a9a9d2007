//! [`Provider`]: what a model is asked, and the pieces that its answer comes in.

use std::{error::Error, fmt, pin::Pin, sync::Arc};

use futures_util::Stream;
use portcullis_types::{CancellationToken, FunctionDecl, Message, async_trait};
use serde::Deserialize;
use thiserror::Error;

/// A model's answer as it comes. It ends with [`Delta::End`], or with an error; one that just stops was cut
/// off, and whoever reads it must take it for that.
pub type DeltaStream = Pin<Box<dyn Stream<Item = Result<Delta, ProviderError>> + Send>>;

/// Somebody who answers for a model.
#[async_trait]
pub trait Provider: Send + Sync {
    /// Asks for one turn, and gives its pieces as they come.
    ///
    /// # Errors
    /// [`ProviderError`] if there is no answer at all. An answer that breaks off is an error of the stream.
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

/// One turn, as it is asked for.
#[derive(Debug, Clone)]
pub struct ModelRequest {
    /// The model's name, as the provider knows it; empty means the provider's own default.
    pub model: String,
    /// The conversation so far, the operator's instructions first.
    pub messages: Vec<Message>,
    /// The tools that the model may call, by name.
    pub tools: Vec<FunctionDecl>,
    /// How many tokens the answer may have at most. Default: the provider's.
    pub max_tokens: Option<u32>,
    /// How freely the model chooses its words, 0 to 2. Default: the provider's.
    pub temperature: Option<f64>,
    /// Fires when nobody wants the answer any more.
    pub cancel: CancellationToken,
}

/// A piece of a model's answer.
#[derive(Debug, Clone, PartialEq)]
pub enum Delta {
    /// More of the text.
    Text(String),
    /// More of what the model thinks before it answers; never sent back.
    Thinking(String),
    /// More of a call.
    ToolCall(ToolCallDelta),
    /// What the turn has cost so far; the last one holds.
    Usage(Usage),
    /// The answer is whole. Nothing follows.
    End(StopReason),
}

/// A piece of a call. Providers send them in any order: the id late or more than once, the name in pieces, the
/// pieces of several calls mixed.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCallDelta {
    /// Which call of the turn, counted from 0. Providers leave gaps.
    pub index: u64,
    /// The call's id.
    pub id: Option<String>,
    /// More of the tool's name.
    pub name: Option<String>,
    /// More of the arguments' text.
    pub arguments: Option<String>,
}

/// Why an answer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StopReason {
    /// The model has said all.
    Stop,
    /// The model waits for its calls.
    ToolCalls,
    /// The limit of tokens: what came last may be cut off.
    Length,
    /// The provider withheld the rest.
    ContentFilter,
    /// A reason that we do not know, in the provider's word.
    Other(String),
}

/// What a turn has cost, in tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Usage {
    /// What was sent.
    pub input_tokens: u64,
    /// What came back.
    pub output_tokens: u64,
}

/// What kind of failure a [`ProviderError`] is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum ProviderErrorKind {
    /// The provider cannot be asked as it is set up: no key, no such model, an address that is none.
    Configuration,
    /// No connection, or it broke before or within the answer.
    Transport,
    /// The provider refused: wrong key or no permission.
    Unauthorized,
    /// Too many requests.
    RateLimited,
    /// The provider refused the request as wrong.
    Rejected,
    /// The provider failed on its side.
    Server,
    /// The answer is none that the protocol knows.
    Malformed,
    /// The answer broke off before its end.
    Incomplete,
    /// The request was cancelled.
    Cancelled,
}

/// Why there is no answer, or no whole one.
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
    /// An error of a kind, in words for the operator. No key may be in them.
    #[must_use]
    pub fn new(kind: ProviderErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), status: None, source: None }
    }

    /// The same error with its cause.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// The same error with the status of HTTP that the provider answered with.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// The status of HTTP that the provider answered with, if it was that which told of the failure.
    #[must_use]
    pub fn status(&self) -> Option<u16> {
        self.status
    }

    /// What kind of failure it is.
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
