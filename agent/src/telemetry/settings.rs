//! [`TelemetrySettings`]: what telemetry says of a run.

/// How much of one content a span takes: 64 KiB, cut at a character. Without it one result could fill an
/// exporter's queue.
pub const MAX_CONTENT_BYTES: usize = 64 << 10;

/// What telemetry says of a run. Events name neither model nor provider, so the embedder does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TelemetrySettings {
    /// Who answers, `gen_ai.provider.name`: `openai`, `anthropic`, `gcp.gemini`, or a word of one's own.
    pub provider: String,
    /// The model that is asked for; empty where the provider's own default is, which is then not named.
    pub model: String,
    /// Whether spans show what calls are about.
    pub content: RecordedContent,
}

impl TelemetrySettings {
    /// Who answers and by what model. Content is not recorded.
    #[must_use]
    pub fn new(provider: impl Into<String>, model: impl Into<String>) -> Self {
        Self { provider: provider.into(), model: model.into(), content: RecordedContent::Nothing }
    }
}

/// Which content goes into spans. It may hold secrets and personal data, and leaves the process by the exporters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum RecordedContent {
    /// None.
    #[default]
    Nothing,
    /// The arguments of calls and what the model reads of their results, [`MAX_CONTENT_BYTES`] of each. What an
    /// internal error tells the operator is not among it.
    Calls,
}
