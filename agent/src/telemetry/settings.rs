//! [`TelemetrySettings`]: what spans and metrics contain.

/// The maximum length of each content in a span: 64 KiB, cut at a character boundary. Without the limit, one
/// result could fill an exporter's queue.
pub const MAX_CONTENT_BYTES: usize = 64 << 10;

/// Settings of telemetry. The embedder names the model and the provider, because events do not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// The provider's name, `gen_ai.provider.name`: `openai`, `anthropic`, `gcp.gemini`, or a custom one.
    pub provider: String,
    /// The requested model. Empty means the provider's default, whose name is not recorded.
    pub model: String,
    /// Whether spans contain the content of calls.
    pub content: ContentCapture,
}

impl TelemetrySettings {
    /// Creates settings for a provider and a model. Content is not recorded.
    #[must_use]
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), content: ContentCapture::Nothing }
    }
}

/// The content that is recorded in spans. Content may contain secrets and personal data, and leaves the process
/// through the exporters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ContentCapture {
    /// None.
    #[default]
    Nothing,
    /// The arguments of calls and the text of results that the model reads, at most [`MAX_CONTENT_BYTES`] of
    /// each. An internal error's message for the operator is never included.
    Calls,
}
