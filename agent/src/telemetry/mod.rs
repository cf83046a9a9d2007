//! Telemetry: a run as spans and metrics of OpenTelemetry, after its conventions for generative AI.
//!
//! Needs the feature `otel`. The conventions are in development
//! (<https://github.com/open-telemetry/semantic-conventions-genai>), and so the names here may change with them.
//! Whoever embeds us brings the SDK and its exporters; the audit log, not this, is the record.
//!
//! | file | what it is |
//! |---|---|
//! | `settings.rs` | what an embedder chooses; content is off |
//! | `emitter.rs` | the emitter that watches and passes on |
//! | `run.rs` | a run's open spans |
//! | `measured.rs` | a span and how long it took |
//! | `instruments.rs` | the histograms |
//! | `words.rs` | names of attributes, and our words for errors and ends |

mod emitter;
mod instruments;
mod measured;
mod run;
mod settings;
#[cfg(test)]
mod tests;
mod words;

pub use emitter::Telemetry;
pub use run::MAX_TRACED_CALLS;
pub use settings::{MAX_CONTENT_BYTES, RecordedContent, TelemetrySettings};
