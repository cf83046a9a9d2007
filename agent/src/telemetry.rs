//! Telemetry: records a run as OpenTelemetry spans and metrics, following its conventions for generative AI.
//!
//! This module needs the feature `otel`. The conventions are in development
//! (<https://github.com/open-telemetry/semantic-conventions-genai>), so the names here may change with them.
//! The embedder provides the SDK and its exporters. The audit log, not telemetry, is the source of truth.
//!
//! | file | what it is |
//! |---|---|
//! | `settings.rs` | the embedder's choices; content is off by default |
//! | `emitter.rs` | the emitter that records and passes on |
//! | `run.rs` | a run's open spans |
//! | `measured.rs` | a span with a measured duration |
//! | `instruments.rs` | the histograms |
//! | `attribute_names.rs` | names of attributes, and this crate's values for errors and ends |

mod attribute_names;
mod emitter;
mod instruments;
mod measured;
mod run;
mod settings;
#[cfg(test)]
mod tests;

pub use emitter::Telemetry;
pub use run::MAX_TRACED_CALLS;
pub use settings::{ContentCapture, MAX_CONTENT_BYTES, TelemetrySettings};
