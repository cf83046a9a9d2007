//! Telemetry of runs, as exporters receive it.

use std::{num::NonZeroUsize, time::Duration};

use opentelemetry::{
    Context, KeyValue, Value,
    trace::{SpanKind, Status, TraceContextExt, Tracer, TracerProvider},
};
use opentelemetry_sdk::{
    metrics::{
        InMemoryMetricExporter, InMemoryMetricExporterBuilder, SdkMeterProvider,
        data::{AggregatedMetrics, MetricData},
    },
    trace::{InMemorySpanExporter, InMemorySpanExporterBuilder, SdkTracerProvider, SpanData},
};
use portcullis_types::{ToolError, ToolEvent, ToolOutput, ToolResult};

use super::{
    super::{
        AgentConfig, AgentEnd, AgentEvent, AgentLoop, AgentRunResult, Delta, EventEmitter,
        InMemoryMessageStore, ProviderErrorKind, StopReason, Usage, event_channel,
        testing::{EventRecorder, Script, ScriptStep, Tools, ask_for, text_answer},
    },
    *,
};

/// Tracer and meter providers that keep everything they are given.
struct TelemetryRecorder {
    tracers: SdkTracerProvider,
    meters: SdkMeterProvider,
    spans: InMemorySpanExporter,
    metrics: InMemoryMetricExporter,
}

/// A point of a histogram: metric, sorted attributes, number of values, and their sum.
#[derive(Debug, PartialEq)]
struct RecordedPoint {
    metric: String,
    attributes: Vec<String>,
    count: u64,
    sum: f64,
}

impl TelemetryRecorder {
    fn new() -> Self {
        let spans = InMemorySpanExporterBuilder::new().build();
        let metrics = InMemoryMetricExporterBuilder::new().build();
        let tracers = SdkTracerProvider::builder().with_simple_exporter(spans.clone()).build();
        let meters = SdkMeterProvider::builder().with_periodic_exporter(metrics.clone()).build();
        Self { tracers, meters, spans, metrics }
    }

    fn emitter<E>(&self, inner: E, content: ContentCapture) -> Telemetry<E> {
        let settings = TelemetrySettings { content, ..TelemetrySettings::new("openai", "gpt") };
        Telemetry::new(inner, settings, &self.tracers, &self.meters)
    }

    async fn run(&self, content: ContentCapture, turns: Vec<Vec<ScriptStep>>) -> AgentRunResult {
        let config = AgentConfig { run_id: Some("run-1".into()), ..AgentConfig::new("clerk") };
        let emitter = self.emitter((), content);
        let (store, script) = (InMemoryMessageStore::new(), Script::new(turns));
        AgentLoop::new(config, emitter, store, script, Tools::default()).run("secret question").await
    }

    fn spans(&self) -> Vec<SpanData> {
        self.spans.get_finished_spans().expect("the exporter keeps everything")
    }

    #[track_caller]
    fn span(&self, name: &str) -> SpanData {
        let mut spans = self.spans();
        spans.retain(|span| span.name == name);
        assert_eq!(spans.len(), 1, "{name}: {:#?}", self.spans());
        spans.remove(0)
    }

    fn points(&self) -> Vec<RecordedPoint> {
        self.meters.force_flush().expect("exported");
        let last = self
            .metrics
            .get_finished_metrics()
            .expect("the exporter keeps everything")
            .pop()
            .expect("something was measured");
        let mut points = Vec::new();
        for metric in last.scope_metrics().flat_map(|scope| scope.metrics()) {
            let mut add = |attributes: Vec<&KeyValue>, count, sum| {
                points.push(RecordedPoint {
                    metric: metric.name().to_owned(),
                    attributes: texts(attributes),
                    count,
                    sum,
                });
            };
            match metric.data() {
                AggregatedMetrics::F64(MetricData::Histogram(data)) => {
                    data.data_points()
                        .for_each(|point| add(point.attributes().collect(), point.count(), point.sum()));
                }
                AggregatedMetrics::U64(MetricData::Histogram(data)) => data.data_points().for_each(|point| {
                    let sum = u32::try_from(point.sum()).expect("small");
                    add(point.attributes().collect(), point.count(), sum.into());
                }),
                other => panic!("no histogram: {other:?}"),
            }
        }
        points
    }

    #[track_caller]
    fn point(&self, metric: &str, attributes: &[&str]) -> RecordedPoint {
        let mut points = self.points();
        points.retain(|point| point.metric == metric && point.attributes == attributes);
        assert_eq!(points.len(), 1, "{metric} {attributes:?}: {:#?}", self.points());
        points.remove(0)
    }

    /// Returns everything that exporters got, as text.
    fn everything(&self) -> String {
        format!("{:?} {:?}", self.spans(), self.points())
    }
}

fn texts<'a>(attributes: impl IntoIterator<Item = &'a KeyValue>) -> Vec<String> {
    let mut texts: Vec<String> =
        attributes.into_iter().map(|attribute| format!("{}={}", attribute.key, attribute.value)).collect();
    texts.sort();
    texts
}

fn attribute(span: &SpanData, name: &str) -> Option<Value> {
    span.attributes
        .iter()
        .find(|attribute| attribute.key.as_str() == name)
        .map(|attribute| attribute.value.clone())
}

fn costing(mut turn: Vec<ScriptStep>, input_tokens: u64, output_tokens: u64) -> Vec<ScriptStep> {
    turn.insert(0, ScriptStep::Delta(Delta::Usage(Usage { input_tokens, output_tokens })));
    turn
}

fn seconds(span: &SpanData) -> f64 {
    span.end_time.duration_since(span.start_time).expect("in order").as_secs_f64()
}

#[track_caller]
fn assert_same_time(span: &SpanData, point: &RecordedPoint) {
    // Spans are only as exact as the system clock.
    assert!((seconds(span) - point.sum).abs() < 1e-5, "{} {}", seconds(span), point.sum);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_a_tree_of_spans_with_the_conventions_attributes() {
    let recorder = TelemetryRecorder::new();
    let turns =
        vec![costing(ask_for(&[("c1", "r_echo", "{}")]), 100, 7), costing(text_answer("done"), 120, 3)];
    recorder.run(ContentCapture::Nothing, turns).await;
    let spans = recorder.spans();
    let names: Vec<&str> = spans.iter().map(|span| &*span.name).collect();
    assert_eq!(names, ["execute_tool r_echo", "chat gpt", "chat gpt", "invoke_agent clerk"]);
    let [tool, first, second, agent] = &spans[..] else { panic!("four") };
    assert_eq!(
        texts(&agent.attributes),
        [
            "gen_ai.agent.id=clerk",
            "gen_ai.agent.name=clerk",
            "gen_ai.operation.name=invoke_agent",
            "gen_ai.provider.name=openai",
            "gen_ai.request.model=gpt",
            "portcullis.run.id=run-1",
        ]
    );
    assert_eq!(
        texts(&first.attributes),
        [
            "gen_ai.operation.name=chat",
            "gen_ai.provider.name=openai",
            "gen_ai.request.model=gpt",
            "gen_ai.response.finish_reasons=[\"tool_calls\"]",
            "gen_ai.usage.input_tokens=100",
            "gen_ai.usage.output_tokens=7",
        ]
    );
    assert_eq!(
        texts(&tool.attributes),
        [
            "gen_ai.agent.name=clerk",
            "gen_ai.operation.name=execute_tool",
            "gen_ai.tool.call.id=c1",
            "gen_ai.tool.name=r_echo",
            "gen_ai.tool.type=function",
        ]
    );
    assert_eq!(attribute(second, "gen_ai.usage.output_tokens"), Some(Value::I64(3)));
    assert_eq!(
        spans.iter().map(|span| span.span_kind.clone()).collect::<Vec<_>>(),
        [SpanKind::Internal, SpanKind::Client, SpanKind::Client, SpanKind::Internal]
    );
    for span in [tool, first, second] {
        assert_eq!(span.parent_span_id, agent.span_context.span_id());
        assert_eq!(span.span_context.trace_id(), agent.span_context.trace_id());
    }
    assert!(spans.iter().all(|span| span.status == Status::Unset && !span.parent_span_is_remote));
    // The answer's span ends when the answer has arrived, not when its calls end.
    assert!(first.end_time <= tool.start_time);
}

#[tokio::test(start_paused = true)]
async fn metrics_are_the_spans_times_and_the_tokens() {
    let recorder = TelemetryRecorder::new();
    let turns =
        vec![costing(ask_for(&[("c1", "r_echo", "{}")]), 100, 7), costing(text_answer("done"), 120, 3)];
    recorder.run(ContentCapture::Nothing, turns).await;
    let agent = recorder
        .point("gen_ai.invoke_agent.duration", &["gen_ai.agent.name=clerk", "gen_ai.request.model=gpt"]);
    assert_same_time(&recorder.span("invoke_agent clerk"), &agent);
    let tool = recorder.point(
        "gen_ai.execute_tool.duration",
        &["gen_ai.agent.name=clerk", "gen_ai.tool.name=r_echo", "gen_ai.tool.type=function"],
    );
    assert_same_time(&recorder.span("execute_tool r_echo"), &tool);
    let attributes =
        ["gen_ai.operation.name=chat", "gen_ai.provider.name=openai", "gen_ai.request.model=gpt"];
    assert_eq!(recorder.point("gen_ai.client.operation.duration", &attributes).count, 2);
    for (kind, sum) in [("input", 220.0), ("output", 10.0)] {
        let kind = format!("gen_ai.token.type={kind}");
        let point = recorder
            .point("gen_ai.client.token.usage", &[attributes[0], attributes[1], attributes[2], &kind]);
        assert_eq!((point.count, point.sum), (2, sum));
    }
}

/// Texts of the conversation, and error messages that are for the operator.
const CONVERSATION: [&str; 4] = ["secret question", "secret argument", "secret thought", "secret answer"];
const OPERATORS: [&str; 2] = ["as asked", "as the script says"];

fn talkative() -> Vec<Vec<ScriptStep>> {
    let arguments = r#"{"x":"secret argument"}"#;
    let mut calls = ask_for(&[("c1", "r_echo", arguments), ("c2", "r_panic", "{}"), ("c3", "r_fail", "{}")]);
    calls.insert(0, ScriptStep::Delta(Delta::Thinking("secret thought".into())));
    let broken = vec![
        ScriptStep::Delta(Delta::Text("secret answer".into())),
        ScriptStep::Fail(ProviderErrorKind::Server),
    ];
    vec![calls, broken]
}

#[tokio::test(start_paused = true)]
async fn content_is_in_no_span_and_no_metric_by_default() {
    let recorder = TelemetryRecorder::new();
    assert_eq!(TelemetrySettings::new("openai", "gpt").content, ContentCapture::Nothing);
    let run = recorder.run(ContentCapture::Nothing, talkative()).await;
    assert!(matches!(run.end, AgentEnd::Provider { .. }), "{run:?}");
    let everything = recorder.everything();
    assert!(everything.contains("r_echo"), "{everything}");
    for text in CONVERSATION.into_iter().chain(OPERATORS).chain(["missing required field"]) {
        assert!(!everything.contains(text), "{text}: {everything}");
    }
}

#[tokio::test(start_paused = true)]
async fn content_of_calls_is_opt_in_and_never_holds_operator_details() {
    let recorder = TelemetryRecorder::new();
    recorder.run(ContentCapture::Calls, talkative()).await;
    let content = |tool: &str, name: &str| attribute(&recorder.span(&format!("execute_tool {tool}")), name);
    let expected_arguments = Some(Value::from(r#"{"x":"secret argument"}"#));
    assert_eq!(content("r_echo", "gen_ai.tool.call.arguments"), expected_arguments);
    assert_eq!(content("r_echo", "gen_ai.tool.call.result"), expected_arguments);
    let failed = content("r_fail", "gen_ai.tool.call.result").expect("recorded").to_string();
    assert!(failed.contains("missing required field"), "{failed}");
    let everything = recorder.everything();
    for text in [CONVERSATION[0], CONVERSATION[2], CONVERSATION[3]].into_iter().chain(OPERATORS) {
        assert!(!everything.contains(text), "{text}: {everything}");
    }
}

#[tokio::test(start_paused = true)]
async fn long_content_is_cut_at_a_character() {
    let recorder = TelemetryRecorder::new();
    let long = format!("{}é", "x".repeat(MAX_CONTENT_BYTES - 1));
    recorder
        .run(ContentCapture::Calls, vec![ask_for(&[("c1", "r_echo", &format!("\"{}\"", &long[1..]))])])
        .await;
    let arguments = attribute(&recorder.span("execute_tool r_echo"), "gen_ai.tool.call.arguments");
    assert_eq!(arguments.expect("recorded").to_string().len(), MAX_CONTENT_BYTES - 1);
}

#[tokio::test(start_paused = true)]
async fn errors_have_a_type_and_invented_tool_names_are_in_no_metric() {
    let recorder = TelemetryRecorder::new();
    let calls = [("c1", "r_fail", "{}"), ("c2", "invented", "{}")];
    recorder.run(ContentCapture::Nothing, vec![ask_for(&calls)]).await;
    for (name, kind) in [("execute_tool r_fail", "invalid_arguments"), ("execute_tool invented", "not_found")]
    {
        let span = recorder.span(name);
        assert_eq!(attribute(&span, "error.type"), Some(Value::from(kind)));
        assert_eq!(span.status, Status::error(""));
    }
    // These events lack the start of a call. The registry reports a start only after its checks, but the test tools
    // report one under any name.
    let emitter = recorder.emitter((), ContentCapture::Nothing);
    emitter.emit(start("run-2")).await;
    emitter.emit(requested("c3", "imagined")).await;
    emitter.emit(ended("c3", "imagined", Err(ToolError::not_found("no such tool")))).await;
    emitter.emit(AgentEvent::AgentEnd { end: AgentEnd::Cancelled }).await;
    assert_eq!(
        attribute(&recorder.span("execute_tool imagined"), "error.type"),
        Some(Value::from("not_found"))
    );
    assert!(!format!("{:?}", recorder.points()).contains("imagined"));
    let attributes = [
        "error.type=not_found",
        "gen_ai.agent.name=clerk",
        "gen_ai.tool.name=_OTHER",
        "gen_ai.tool.type=function",
    ];
    assert_eq!(recorder.point("gen_ai.execute_tool.duration", &attributes).count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_provider_that_fails_fails_the_turn_and_the_run() {
    let recorder = TelemetryRecorder::new();
    recorder.run(ContentCapture::Nothing, vec![vec![ScriptStep::Fail(ProviderErrorKind::RateLimited)]]).await;
    for name in ["chat gpt", "invoke_agent clerk"] {
        assert_eq!(
            attribute(&recorder.span(name), "error.type"),
            Some(Value::from("rate_limited")),
            "{name}"
        );
    }
    let attributes = [
        "error.type=rate_limited",
        "gen_ai.operation.name=chat",
        "gen_ai.provider.name=openai",
        "gen_ai.request.model=gpt",
    ];
    assert_eq!(recorder.point("gen_ai.client.operation.duration", &attributes).count, 1);
}

#[tokio::test(start_paused = true)]
async fn a_run_that_fails_after_an_answer_marks_no_error_on_it() {
    let recorder = TelemetryRecorder::new();
    let same_call = || ask_for(&[("c", "r_echo", "{}")]);
    let run = recorder
        .run(ContentCapture::Nothing, vec![same_call(), same_call(), same_call(), same_call(), same_call()])
        .await;
    assert!(matches!(run.end, AgentEnd::Repeated { .. }), "{run:?}");
    assert_eq!(attribute(&recorder.span("invoke_agent clerk"), "error.type"), Some(Value::from("repeated")));
    let chats = recorder.spans().into_iter().filter(|span| span.name == "chat gpt");
    assert_eq!(chats.map(|span| attribute(&span, "error.type")).collect::<Vec<_>>(), [const { None }; 5]);
}

#[tokio::test(start_paused = true)]
async fn a_run_is_a_child_of_its_callers_span() {
    let recorder = TelemetryRecorder::new();
    let caller = Context::new().with_span(recorder.tracers.tracer("caller").start("request"));
    let emitter = recorder.emitter((), ContentCapture::Nothing);
    {
        let _inside = caller.clone().attach();
        emitter.emit_now(start("run-1"));
    }
    emitter.emit_now(AgentEvent::AgentEnd { end: AgentEnd::Answer { text: "done".into() } });
    assert_eq!(recorder.span("invoke_agent clerk").parent_span_id, caller.span().span_context().span_id());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_run_is_closed_by_the_next_or_the_emitters_drop() {
    let recorder = TelemetryRecorder::new();
    let emitter = recorder.emitter((), ContentCapture::Nothing);
    for run in ["run-1", "run-2"] {
        emitter.emit(start(run)).await;
        emitter.emit(AgentEvent::TurnStart { iteration: 1 }).await;
        emitter.emit(requested("c1", "r_deaf")).await;
    }
    assert_eq!(recorder.spans().len(), 3);
    drop(emitter);
    let spans = recorder.spans();
    assert_eq!(spans.len(), 6);
    for span in spans {
        assert_eq!(attribute(&span, "error.type"), Some(Value::from("cancelled")), "{}", span.name);
        let tool = span.name.starts_with("execute_tool").then(|| Value::from("r_deaf"));
        assert_eq!(attribute(&span, "gen_ai.tool.name"), tool);
    }
}

#[tokio::test(start_paused = true)]
async fn calls_beyond_the_limit_are_counted_and_get_no_span() {
    let recorder = TelemetryRecorder::new();
    let emitter = recorder.emitter((), ContentCapture::Nothing);
    emitter.emit(start("run-1")).await;
    for nth in 0..MAX_TRACED_CALLS + 2 {
        emitter.emit(requested(&format!("c{nth}"), "r_echo")).await;
    }
    for nth in 0..MAX_TRACED_CALLS + 2 {
        emitter.emit(ended(&format!("c{nth}"), "r_echo", Ok(ToolOutput::text("x")))).await;
    }
    // The ended calls have left room for a further span.
    emitter.emit(requested("later", "r_echo")).await;
    emitter.emit(ended("later", "r_echo", Ok(ToolOutput::text("x")))).await;
    emitter.emit(AgentEvent::AgentEnd { end: AgentEnd::Answer { text: String::new() } }).await;
    let traced = recorder.spans().iter().filter(|span| span.name == "execute_tool r_echo").count();
    assert_eq!(traced, MAX_TRACED_CALLS + 1);
    let agent = recorder.span("invoke_agent clerk");
    assert_eq!(attribute(&agent, "portcullis.untraced_calls"), Some(Value::I64(2)));
}

#[tokio::test(start_paused = true)]
async fn a_tool_called_by_an_alias_is_recorded_under_its_name() {
    let recorder = TelemetryRecorder::new();
    let emitter = recorder.emitter((), ContentCapture::Nothing);
    emitter.emit(start("run-1")).await;
    emitter.emit(requested("c1", "alias")).await;
    emitter.emit(ended("c1", "r_echo", Ok(ToolOutput::text("x")))).await;
    let span = recorder.span("execute_tool r_echo");
    assert_eq!(attribute(&span, "gen_ai.tool.name"), Some(Value::from("r_echo")));
}

#[tokio::test(start_paused = true)]
async fn a_provider_specific_stop_reason_is_not_recorded() {
    let recorder = TelemetryRecorder::new();
    let turn = vec![
        ScriptStep::Delta(Delta::Text("x".into())),
        ScriptStep::Delta(Delta::End(StopReason::Other("odd".into()))),
    ];
    recorder.run(ContentCapture::Nothing, vec![turn]).await;
    let reasons = attribute(&recorder.span("chat gpt"), "gen_ai.response.finish_reasons").expect("told");
    assert_eq!(reasons.to_string(), "[\"_OTHER\"]");
}

#[tokio::test(start_paused = true)]
async fn every_event_is_forwarded_unchanged() {
    let recorder = TelemetryRecorder::new();
    let (notes, untraced_notes) = (EventRecorder::default(), EventRecorder::default());
    let config = AgentConfig { run_id: Some("run-1".into()), ..AgentConfig::new("clerk") };
    let turns = || vec![ask_for(&[("c1", "r_loud", "{}")]), text_answer("done")];
    let telemetry = recorder.emitter(notes.clone(), ContentCapture::Nothing);
    let store = InMemoryMessageStore::new;
    AgentLoop::new(config.clone(), telemetry, store(), Script::new(turns()), Tools::default())
        .run("go")
        .await;
    AgentLoop::new(config, untraced_notes.clone(), store(), Script::new(turns()), Tools::default())
        .run("go")
        .await;
    assert_eq!(notes.events(), untraced_notes.events());
    assert!(untraced_notes.events().len() > 1000);
}

#[tokio::test(start_paused = true)]
async fn an_event_that_a_stuck_reader_gets_twice_is_traced_once() {
    for first in 0..12 {
        let recorder = TelemetryRecorder::new();
        let (sender, mut receiver) = event_channel(NonZeroUsize::MIN);
        let telemetry = recorder.emitter(sender, ContentCapture::Nothing);
        let calls = ask_for(&[("c1", "r_echo", "{}"), ("c2", "w_deaf", "{}")]);
        let mut agent = AgentLoop::new(
            AgentConfig::new("clerk"),
            telemetry,
            InMemoryMessageStore::new(),
            Script::new([calls]),
            Tools::default(),
        );
        let handle = agent.handle();
        let reading = async {
            let mut read = Vec::new();
            while read.len() < first {
                read.push(receiver.recv().await.expect("an event"));
            }
            read
        };
        let cancelling = async {
            tokio::time::sleep(Duration::from_secs(60)).await;
            handle.cancel();
        };
        let (run, mut read, ()) = futures_util::join!(agent.run("go"), reading, cancelling);
        assert_eq!(run.end, AgentEnd::Cancelled);
        read.extend(std::iter::from_fn(|| receiver.try_recv()));
        drop(agent);
        recorder.span("invoke_agent clerk");
        let spans = recorder.spans();
        let has = |matches: fn(&AgentEvent) -> bool| read.iter().filter(|event| matches(event)).count();
        let spans_named = |name: &str| spans.iter().filter(|span| span.name.starts_with(name)).count();
        assert_eq!(
            spans_named("chat"),
            has(|event| matches!(event, AgentEvent::TurnStart { .. })),
            "{first}"
        );
        let ends = has(|event| matches!(event, AgentEvent::ToolEnd { .. }));
        assert_eq!(spans_named("execute_tool"), ends, "{first}");
    }
}

fn start(run_id: &str) -> AgentEvent {
    AgentEvent::AgentStart { agent_id: "clerk".into(), run_id: run_id.into() }
}

fn requested(call_id: &str, tool: &str) -> AgentEvent {
    AgentEvent::Tool(ToolEvent::Requested {
        call_id: call_id.into(),
        tool: tool.into(),
        arguments: String::new(),
    })
}

fn ended(call_id: &str, tool: &str, outcome: Result<ToolOutput, ToolError>) -> AgentEvent {
    let result = ToolResult {
        call_id: call_id.into(),
        tool: tool.into(),
        outcome: outcome.into(),
        details: serde_json::Value::Null,
        truncated: false,
        original_bytes: 0,
        duration: Duration::ZERO,
    };
    AgentEvent::ToolEnd { result: result.into() }
}
