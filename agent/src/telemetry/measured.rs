//! [`Measured`]: a span, and how long what it stands for took.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::{
    Context, KeyValue,
    global::{BoxedSpan, BoxedTracer},
    trace::{Span, SpanKind, Status, Tracer},
};

use super::words::ERROR_TYPE;

/// A span that is open. Its end is its start and the time that went by, so that a clock which is set in
/// between changes neither the span nor its metric.
#[derive(Debug)]
pub(super) struct Measured {
    pub(super) span: BoxedSpan,
    started: SystemTime,
    since: Instant,
}

impl Measured {
    pub(super) fn start(
        tracer: &BoxedTracer,
        name: String,
        kind: SpanKind,
        attributes: Vec<KeyValue>,
        parent: &Context,
    ) -> Self {
        let (started, since) = (SystemTime::now(), Instant::now());
        let builder =
            tracer.span_builder(name).with_kind(kind).with_start_time(started).with_attributes(attributes);
        Self { span: tracer.build_with_context(builder, parent), started, since }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.since.elapsed()
    }

    /// Ends the span. An error has a type and no words: those may be the operator's alone.
    pub(super) fn end(mut self, took: Duration, error: Option<&str>) {
        if let Some(error) = error {
            self.span.set_attribute(KeyValue::new(ERROR_TYPE, error.to_owned()));
            self.span.set_status(Status::error(""));
        }
        self.span.end_with_timestamp(self.started.checked_add(took).unwrap_or(self.started));
    }
}
