//! [`Telemetry`]: an emitter that records a run as spans and metrics, and passes its events on.

use std::{
    fmt,
    sync::atomic::{AtomicBool, Ordering},
};

use opentelemetry::{
    InstrumentationScope,
    global::BoxedTracer,
    metrics::MeterProvider,
    trace::{Tracer, TracerProvider},
};
use parking_lot::Mutex;
use portcullis_types::async_trait;

use super::{
    super::{AgentEvent, EventEmitter},
    TelemetrySettings,
    attribute_names::ABANDONED,
    instruments::Instruments,
    run::Run,
};

/// Records an agent's runs as spans and metrics, and passes every event on to another emitter (`()` for
/// none). Each agent needs its own `Telemetry`, because events do not name the agent that they belong to.
///
/// - A span `invoke_agent {agent}` for each run, a child of the caller's span if there is one. Its children are:
/// - a span `chat {model}` for each turn: model, provider, tokens, stop reason;
/// - a span `execute_tool {tool}` for each call, from the request to the result: name, id, and the error's
///   kind. Spans that a tool itself creates are not children of this span.
/// - Histograms `gen_ai.invoke_agent.duration`, `gen_ai.client.operation.duration`,
///   `gen_ai.client.token.usage`, `gen_ai.execute_tool.duration`.
///
/// Spans and metrics hold no text of messages, thinking, arguments or results unless
/// [`ContentCapture`](super::ContentCapture) allows it, and never an error's message for the operator. If
/// the calls of a turn end the run, the turn's tokens are not recorded.
///
/// # Examples
/// The OpenTelemetry providers are those that the program has set globally:
/// ```
/// use opentelemetry::global;
/// use portcullis_agent::telemetry::{Telemetry, TelemetrySettings};
///
/// let settings = TelemetrySettings::new("openai", "gpt-4o");
/// let emitter = Telemetry::new((), settings, &global::tracer_provider(), &*global::meter_provider());
/// # let _ = emitter;
/// ```
pub struct Telemetry<E> {
    inner: E,
    settings: TelemetrySettings,
    tracer: BoxedTracer,
    instruments: Instruments,
    run: Mutex<Option<Run>>,
    /// Set while an event is recorded but not yet delivered to `inner`. If the future of `emit` is dropped in
    /// between, the loop sends the event again, and it must not be recorded twice.
    is_delivery_pending: AtomicBool,
}

impl<E> Telemetry<E> {
    /// Creates an emitter that records with these tracers and meters, and passes events on to `inner`.
    #[must_use]
    pub fn new<P>(
        inner: E,
        settings: TelemetrySettings,
        tracers: &P,
        meters: &(impl MeterProvider + ?Sized),
    ) -> Self
    where
        P: TracerProvider,
        P::Tracer: Send + Sync + 'static,
        <P::Tracer as Tracer>::Span: Send + Sync + 'static,
    {
        let scope =
            InstrumentationScope::builder("portcullis").with_version(env!("CARGO_PKG_VERSION")).build();
        Self {
            inner,
            settings,
            tracer: BoxedTracer::new(Box::new(tracers.tracer_with_scope(scope.clone()))),
            instruments: Instruments::new(&meters.meter_with_scope(scope)),
            run: Mutex::new(None),
            is_delivery_pending: AtomicBool::new(false),
        }
    }

    /// Records an event in the spans and instruments of its run.
    fn record(&self, event: &AgentEvent) {
        let (settings, instruments) = (&self.settings, &self.instruments);
        let mut open_run = self.run.lock();
        match event {
            AgentEvent::AgentStart { agent_id, run_id } => {
                // A run that is still open was dropped, because no event reported its end.
                if let Some(abandoned_run) = open_run.take() {
                    abandoned_run.end(settings, instruments, Some(ABANDONED));
                }
                *open_run = Some(Run::start(&self.tracer, settings, agent_id, run_id));
            }
            AgentEvent::AgentEnd { end } => {
                if let Some(run) = open_run.take() {
                    run.end(settings, instruments, super::attribute_names::error_type(end).as_deref());
                }
            }
            event => {
                if let Some(run) = open_run.as_mut() {
                    run.record_event(&self.tracer, settings, instruments, event);
                }
            }
        }
    }
}

#[async_trait]
impl<E: EventEmitter> EventEmitter for Telemetry<E> {
    async fn emit(&self, event: AgentEvent) {
        self.record(&event);
        self.is_delivery_pending.store(event.must_arrive(), Ordering::Relaxed);
        self.inner.emit(event).await;
        self.is_delivery_pending.store(false, Ordering::Relaxed);
    }

    fn emit_now(&self, event: AgentEvent) {
        if !(event.must_arrive() && self.is_delivery_pending.swap(false, Ordering::Relaxed)) {
            self.record(&event);
        }
        self.inner.emit_now(event);
    }
}

/// Closes a run whose future was dropped, because no event reports its end.
impl<E> Drop for Telemetry<E> {
    fn drop(&mut self) {
        let open_run = self.run.get_mut();
        if let Some(abandoned_run) = open_run.take() {
            abandoned_run.end(&self.settings, &self.instruments, Some(ABANDONED));
        }
    }
}

impl<E> fmt::Debug for Telemetry<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Telemetry").field("settings", &self.settings).finish_non_exhaustive()
    }
}
