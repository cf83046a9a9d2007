//! The overhead of an agent loop over its calls, and the cost of an event reader that is too slow.

use std::{
    num::NonZeroUsize,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use portcullis_agent::{
    AgentConfig, AgentEvent, AgentLoop, DEFAULT_EVENT_CAPACITY, Delta, EventEmitter, EventReceiver,
    ExecutionStrategy, InMemoryMessageStore, ScriptedProvider, StopReason, ToolCallDelta, event_channel,
};
use portcullis_testing::{Fixture, approving_caller};
use portcullis_tools::{Caller, RegistryExecutor, ToolRegistry, new_call};
use portcullis_types::{FunctionDecl, JsonSchema, SafetyTier, Tool, ToolError, async_trait};
use serde_json::json;

use crate::{
    read::Files,
    report::{Report, Slowness},
    sample::{median_us, resident_bytes},
};

/// Calls in one turn, within the loop's limit.
const CALLS: usize = 100;
const ROUNDS: usize = 60;
/// Concurrent calls, if calls may run concurrently: the default.
const CONCURRENCY: NonZeroUsize = NonZeroUsize::new(10).expect("10 is not 0");
const EVENTS: usize = 10_000;

/// A tool that returns its arguments. Unlike the shipped `echo`, it is offered to the model: a loop runs calls
/// concurrently only if their tool is offered.
struct Reply;

#[async_trait]
impl Tool for Reply {
    fn schema(&self) -> FunctionDecl {
        let parameters = json!({
            "type": "object",
            "properties": {"message": {"type": "string"}},
            "required": ["message"],
            "additionalProperties": false,
        });
        FunctionDecl { name: "reply".to_owned(), description: None, parameters: JsonSchema::new(parameters) }
    }

    async fn execute(&self, arguments: &str) -> Result<String, ToolError> {
        Ok(arguments.to_owned())
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }
}

/// Measures the same calls in three ways, one after the other: through the registry, through a loop without an event
/// reader, and through a loop whose events a task reads.
#[expect(clippy::disallowed_methods, reason = "a benchmark's own task, awaited below")]
pub(crate) async fn overhead(files: &Files, report: &mut Report) {
    let fixture = Fixture::new().with_policy("[tools.reply]\nenabled = true\n");
    let builder = fixture.builder().await.expect("a builder");
    let registry = &Arc::new(builder.tool(Reply).build().expect("a registry"));
    let (mut direct, mut looped, mut watched, mut native) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    let (mut direct_parallel, mut looped_parallel) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let caller = Caller::new(format!("bare-{round}"), "bench");
        let start = Instant::now();
        for number in 0..CALLS {
            let result = registry.execute_with_policy(new_call("reply", message(number)), &caller).await;
            result.into_result().expect("a result");
        }
        direct.push(start.elapsed());
        native.extend((0..CALLS).map(|number| files.read_natively(number)));
        let caller = Caller::new(format!("bare-beside-{round}"), "bench");
        let start = Instant::now();
        let calls = (0..CALLS)
            .map(|number| registry.execute_with_policy(new_call("reply", message(number)), &caller));
        let results = futures_util::stream::iter(calls).buffer_unordered(CONCURRENCY.get());
        results.for_each(|result| async move { drop(result.into_result().expect("a result")) }).await;
        direct_parallel.push(start.elapsed());
        let mut agent_loop = agent(registry, format!("beside-{round}"), (), ExecutionStrategy::Parallel);
        let start = Instant::now();
        let run = agent_loop.run("go on").await;
        looped_parallel.push(start.elapsed());
        assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
        let mut agent_loop = agent(registry, format!("looped-{round}"), (), ExecutionStrategy::Sequential);
        let start = Instant::now();
        let run = agent_loop.run("go on").await;
        looped.push(start.elapsed());
        assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
        let (sender, receiver) = event_channel(DEFAULT_EVENT_CAPACITY);
        let reader = tokio::spawn(read_to_the_end(receiver));
        let mut agent_loop =
            agent(registry, format!("watched-{round}"), sender, ExecutionStrategy::Sequential);
        let start = Instant::now();
        let run = agent_loop.run("go on").await;
        watched.push(start.elapsed());
        assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
        assert_eq!(reader.await.expect("a reader"), CALLS, "each call's end is read");
    }
    let per_call = |samples: &mut Vec<_>| median_us(samples) / CALLS as f64;
    let (direct, looped, watched) = (per_call(&mut direct), per_call(&mut looped), per_call(&mut watched));
    report.add_reference("a tool without work through the registry, a call", direct, "µs");
    let slowness = Slowness::from_native_read(median_us(&mut native));
    report.check_at_most_scaled("what a loop adds to it", looped - direct, 20.0, "µs", slowness);
    let what = "what a loop with a reader of its events adds to it";
    report.check_at_most_scaled(what, watched - direct, 20.0, "µs", slowness);
    let (direct, looped) = (per_call(&mut direct_parallel), per_call(&mut looped_parallel));
    report.add_reference("a tool without work through the registry, a call of 10 at a time", direct, "µs");
    report.check_at_most_scaled("what a loop adds to it then", looped - direct, 20.0, "µs", slowness);
}

/// Reads a run's events as they arrive, and returns the number of calls that ended.
async fn read_to_the_end(mut receiver: EventReceiver) -> usize {
    let mut ends = 0;
    while let Some(event) = receiver.recv().await {
        match event {
            AgentEvent::ToolEnd { .. } => ends += 1,
            AgentEvent::AgentEnd { .. } => break,
            _ => {}
        }
    }
    ends
}

/// Creates a loop whose model makes one turn of calls and then answers.
fn agent(
    registry: &Arc<ToolRegistry>,
    name: String,
    emitter: impl EventEmitter + 'static,
    strategy: ExecutionStrategy,
) -> AgentLoop {
    let calls = (0..CALLS).map(|number| {
        Delta::ToolCall(ToolCallDelta {
            index: number as u64,
            id: Some(format!("call-{number}")),
            name: Some("reply".to_owned()),
            arguments: Some(message(number)),
        })
    });
    let script = ScriptedProvider::new()
        .then(calls.chain([Delta::End(StopReason::ToolCalls)]))
        .then([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)]);
    let mut config = AgentConfig::new(name);
    config.strategy = strategy;
    config.concurrency = CONCURRENCY;
    let executor = RegistryExecutor::new(Arc::clone(registry), approving_caller());
    AgentLoop::new(config, emitter, InMemoryMessageStore::new(), script, executor)
}

fn message(number: usize) -> String {
    format!("{{\"message\": \"number {number}\"}}")
}

/// Measures a stream of unread events of running calls. The stream keeps events up to half of its capacity, and then
/// the latest event of each call; all events together would be more than 10 MB.
pub(crate) fn slow_reader(report: &mut Report) {
    let (sender, receiver) = event_channel(NonZeroUsize::new(1024).expect("1024 is not 0"));
    let emit_update = |number: usize| {
        sender.emit_now(AgentEvent::Tool(portcullis_types::ToolEvent::Update {
            call_id: format!("call-{}", number % 10),
            partial: portcullis_types::ToolOutput::text("x".repeat(1024)),
        }));
    };
    let bytes_before = resident_bytes(std::process::id());
    (0..EVENTS).for_each(emit_update);
    let growth_bytes = resident_bytes(std::process::id()).saturating_sub(bytes_before);
    assert!(receiver.dropped() > 0, "events without a reader are dropped");
    report.check_at_most("growth over 10 000 events that nobody reads", growth_bytes as f64 / 1e6, 1.0, "MB");
}
