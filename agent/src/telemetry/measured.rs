//! [`MeasuredSpan`]: a span with a measured duration.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::{
    Context, KeyValue,
    global::{BoxedSpan, BoxedTracer},
    trace::{Span, SpanKind, Status, Tracer},
};

use super::attribute_names::ERROR_TYPE;

/// An open span. Its end is its start plus the monotonic time since, so that setting the clock changes
/// neither the span nor its metric.
#[derive(Debug)]
pub(super) struct MeasuredSpan {
    pub(super) span: BoxedSpan,
    started: SystemTime,
    since: Instant,
}

impl MeasuredSpan {
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

    /// Ends the span. It records an error's type and no message, which may be for the operator alone.
    pub(super) fn end(mut self, took: Duration, error: Option<&str>) {
        if let Some(error) = error {
            self.span.set_attribute(KeyValue::new(ERROR_TYPE, error.to_owned()));
            self.span.set_status(Status::error(""));
        }
        self.span.end_with_timestamp(self.started.checked_add(took).unwrap_or(self.started));
    }
}
