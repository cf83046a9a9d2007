//! [`Run`]: the open spans of a run, and how each event changes them.

use std::{collections::HashMap, time::Duration};

use opentelemetry::{
    Array, Context, KeyValue, StringValue, Value,
    global::BoxedTracer,
    trace::{Span, SpanKind, TraceContextExt},
};
use portcullis_types::{ToolEvent, ToolResult};

use super::{
    super::{AgentEvent, StopReason, Usage},
    ContentCapture, MAX_CONTENT_BYTES, TelemetrySettings,
    attribute_names::{
        ABANDONED, AGENT_ID, AGENT_NAME, CALL_ARGUMENTS, CALL_ID, CALL_RESULT, CHAT, EXECUTE_TOOL,
        FINISH_REASONS, INPUT_TOKENS, INVOKE_AGENT, OPERATION, OUTPUT_TOKENS, PROVIDER, RUN_ID, TOOL_NAME,
        TOOL_TYPE, UNTRACED_CALLS, finish_reason,
    },
    instruments::{Instruments, model, request_attributes},
    measured::MeasuredSpan,
};

/// The maximum number of calls with an open span. Without the limit, calls that never end could fill the
/// memory. Calls beyond the limit are counted in the run's span as `portcullis.untraced_calls`.
pub const MAX_TRACED_CALLS: usize = 1024;

/// A run's open spans.
#[derive(Debug)]
pub(super) struct Run {
    span: MeasuredSpan,
    /// The context that makes new spans children of `span`.
    child_context: Context,
    agent_id: String,
    chat: Option<Chat>,
    calls: HashMap<String, CallSpan>,
    untraced: i64,
}

#[derive(Debug)]
struct Chat {
    span: MeasuredSpan,
    /// Duration of the response, once it has arrived. The span stays open, because the turn's end adds attributes.
    duration: Option<Duration>,
    /// Whether the response is known to be complete. A response with calls is reported only when it is complete.
    is_complete: bool,
}

#[derive(Debug)]
struct CallSpan {
    span: MeasuredSpan,
    /// The name as requested. It may be an alias, so the attribute is set only at the end, from the result.
    /// The SDK would keep both values of an attribute that is set twice.
    tool: String,
    has_started: bool,
}

impl Run {
    pub(super) fn start(
        tracer: &BoxedTracer,
        settings: &TelemetrySettings,
        agent_id: &str,
        run_id: &str,
    ) -> Self {
        let mut attributes = vec![
            KeyValue::new(OPERATION, INVOKE_AGENT),
            KeyValue::new(PROVIDER, settings.provider.clone()),
            KeyValue::new(AGENT_ID, agent_id.to_owned()),
            KeyValue::new(AGENT_NAME, agent_id.to_owned()),
            KeyValue::new(RUN_ID, run_id.to_owned()),
        ];
        attributes.extend(model(settings));
        let parent_context = Context::current();
        let name = format!("{INVOKE_AGENT} {agent_id}");
        let span = MeasuredSpan::start(tracer, name, SpanKind::Internal, attributes, &parent_context);
        // The context gets only the span's ids, because the span itself must stay here until it ends.
        let child_context = parent_context.with_remote_span_context(span.span.span_context().clone());
        Self {
            span,
            child_context,
            agent_id: agent_id.to_owned(),
            chat: None,
            calls: HashMap::new(),
            untraced: 0,
        }
    }

    /// Records an event between a run's start and its end.
    pub(super) fn record_event(
        &mut self,
        tracer: &BoxedTracer,
        settings: &TelemetrySettings,
        instruments: &Instruments,
        event: &AgentEvent,
    ) {
        match event {
            AgentEvent::TurnStart { .. } => {
                let name = match settings.model.as_str() {
                    "" => CHAT.to_owned(),
                    model => format!("{CHAT} {model}"),
                };
                let span = MeasuredSpan::start(
                    tracer,
                    name,
                    SpanKind::Client,
                    request_attributes(settings),
                    &self.child_context,
                );
                self.chat = Some(Chat { span, duration: None, is_complete: false });
            }
            AgentEvent::MessageEnd { message } => {
                if let Some(chat) = &mut self.chat {
                    // The first message of the turn stops the clock: the calls that follow are not the
                    // model's time.
                    chat.duration.get_or_insert(chat.span.elapsed());
                    chat.is_complete |= !message.tool_calls.is_empty();
                }
            }
            AgentEvent::TurnEnd { stop, usage, .. } => {
                if let Some(mut chat) = self.chat.take() {
                    chat.record_stop_and_usage(stop, *usage);
                    if let Some(usage) = usage {
                        instruments.tokens(settings, *usage);
                    }
                    chat.end(settings, instruments, None);
                }
            }
            AgentEvent::Tool(ToolEvent::Requested { call_id, tool, arguments }) => {
                self.start_call(tracer, settings, call_id, tool, arguments);
            }
            AgentEvent::Tool(ToolEvent::Started { call_id, .. }) => {
                if let Some(call) = self.calls.get_mut(call_id) {
                    call.has_started = true;
                }
            }
            AgentEvent::ToolEnd { result } => self.end_call(settings, instruments, result),
            // No span or metric shows the other events: pieces of a response, approvals, reports of running
            // calls, and steering. `Telemetry::watch` handles the start and the end of the run.
            _ => {}
        }
    }

    /// Ends the run, and all its spans that are still open.
    pub(super) fn end(
        mut self,
        settings: &TelemetrySettings,
        instruments: &Instruments,
        error: Option<&str>,
    ) {
        if let Some(chat) = self.chat.take() {
            // If the response is complete, a failure of its calls is not the response's failure.
            let error = error.filter(|_| !chat.is_complete);
            chat.end(settings, instruments, error);
        }
        for (_, CallSpan { mut span, tool, .. }) in self.calls.drain() {
            span.span.set_attribute(KeyValue::new(TOOL_NAME, tool));
            let took = span.elapsed();
            span.end(took, Some(ABANDONED));
        }
        if self.untraced > 0 {
            self.span.span.set_attribute(KeyValue::new(UNTRACED_CALLS, self.untraced));
        }
        let took = self.span.elapsed();
        instruments.agent(settings, &self.agent_id, took, error);
        self.span.end(took, error);
    }

    fn start_call(
        &mut self,
        tracer: &BoxedTracer,
        settings: &TelemetrySettings,
        call_id: &str,
        tool: &str,
        arguments: &str,
    ) {
        if self.calls.len() >= MAX_TRACED_CALLS {
            self.untraced = self.untraced.saturating_add(1);
            return;
        }
        let mut attributes = vec![
            KeyValue::new(OPERATION, EXECUTE_TOOL),
            KeyValue::new(TOOL_TYPE, "function"),
            KeyValue::new(CALL_ID, call_id.to_owned()),
            KeyValue::new(AGENT_NAME, self.agent_id.clone()),
        ];
        if settings.content == ContentCapture::Calls {
            attributes.push(KeyValue::new(CALL_ARGUMENTS, truncate_content(arguments)));
        }
        let name = format!("{EXECUTE_TOOL} {tool}");
        let span = MeasuredSpan::start(tracer, name, SpanKind::Internal, attributes, &self.child_context);
        self.calls.insert(call_id.to_owned(), CallSpan { span, tool: tool.to_owned(), has_started: false });
    }

    fn end_call(&mut self, settings: &TelemetrySettings, instruments: &Instruments, result: &ToolResult) {
        let Some(CallSpan { mut span, tool, has_started }) = self.calls.remove(&result.call_id) else {
            return;
        };
        let error = result.outcome.error().map(|error| error.kind().as_str());
        if tool != result.tool {
            span.span.update_name(format!("{EXECUTE_TOOL} {}", result.tool));
        }
        span.span.set_attribute(KeyValue::new(TOOL_NAME, result.tool.clone()));
        if settings.content == ContentCapture::Calls && span.span.is_recording() {
            span.span.set_attribute(KeyValue::new(CALL_RESULT, truncate_content(&result.model_text())));
        }
        let took = span.elapsed();
        // A started or successful call proves that the name is a tool's.
        let is_known_tool = has_started || error.is_none();
        instruments.tool(&self.agent_id, is_known_tool.then_some(result.tool.as_str()), took, error);
        span.end(took, error);
    }
}

impl Chat {
    fn record_stop_and_usage(&mut self, stop: &StopReason, usage: Option<Usage>) {
        let span = &mut self.span.span;
        let reasons = Array::String(vec![StringValue::from(finish_reason(stop))]);
        span.set_attribute(KeyValue::new(FINISH_REASONS, Value::Array(reasons)));
        if let Some(Usage { input_tokens, output_tokens }) = usage {
            for (name, count) in [(INPUT_TOKENS, input_tokens), (OUTPUT_TOKENS, output_tokens)] {
                span.set_attribute(KeyValue::new(name, i64::try_from(count).unwrap_or(i64::MAX)));
            }
        }
    }

    fn end(self, settings: &TelemetrySettings, instruments: &Instruments, error: Option<&str>) {
        let took = self.duration.unwrap_or_else(|| self.span.elapsed());
        instruments.chat(settings, took, error);
        self.span.end(took, error);
    }
}

fn truncate_content(content: &str) -> String {
    content[..content.floor_char_boundary(MAX_CONTENT_BYTES)].to_owned()
}
