//! [`MeasuredSpan`]: a span with a measured duration.

use std::time::{Duration, Instant, SystemTime};

use opentelemetry::{
    Context, KeyValue,
    global::{BoxedSpan, BoxedTracer},
    trace::{Span, SpanKind, Status, Tracer},
};

use super::attribute_names::ERROR_TYPE;

/// An open span. Its end is its start plus the monotonic time since then, so that a change of the system clock
/// affects neither the span nor its metric.
#[derive(Debug)]
pub(super) struct MeasuredSpan {
    pub(super) span: BoxedSpan,
    start_time: SystemTime,
    started_at: Instant,
}

impl MeasuredSpan {
    pub(super) fn start(
        tracer: &BoxedTracer,
        name: String,
        kind: SpanKind,
        attributes: Vec<KeyValue>,
        parent: &Context,
    ) -> Self {
        let (start_time, started_at) = (SystemTime::now(), Instant::now());
        let builder =
            tracer.span_builder(name).with_kind(kind).with_start_time(start_time).with_attributes(attributes);
        Self { span: tracer.build_with_context(builder, parent), start_time, started_at }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.started_at.elapsed()
    }

    /// Ends the span. Records an error's type but no message, because a message may be for the operator only.
    pub(super) fn end(mut self, took: Duration, error: Option<&str>) {
        if let Some(error) = error {
            self.span.set_attribute(KeyValue::new(ERROR_TYPE, error.to_owned()));
            self.span.set_status(Status::error(""));
        }
        self.span.end_with_timestamp(self.start_time.checked_add(took).unwrap_or(self.start_time));
    }
}
