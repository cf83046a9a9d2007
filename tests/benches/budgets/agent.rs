//! What a loop adds to the calls that it makes, and what a reader costs that does not keep up.

use std::{num::NonZeroUsize, sync::Arc, time::Instant};

use portcullis::{
    RegistryExecutor,
    agent::{
        AgentConfig, AgentEvent, AgentLoop, Delta, EventEmitter as _, InMemoryMessageStore, ScriptedProvider,
        StopReason, ToolCallDelta, event_channel,
    },
};
use portcullis_tests::approving;
use portcullis_tools::{Caller, ToolRegistry, new_call};

use crate::{
    read::Files,
    report::{Report, Slowness},
    sample::{median_us, resident_bytes},
};

/// How many calls a turn has; as many as a model may have run.
const CALLS: usize = 100;
const ROUNDS: usize = 60;
const EVENTS: usize = 10_000;

/// The same calls through the registry and through a loop over it, in turns.
pub(crate) async fn overhead(registry: &Arc<ToolRegistry>, files: &Files, report: &mut Report) {
    let (mut bare, mut looped, mut native) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let caller = Caller::new(format!("bare-{round}"), "bench");
        let start = Instant::now();
        for number in 0..CALLS {
            let result = registry.execute_with_policy(new_call("echo", message(number)), &caller).await;
            result.outcome.expect("a result");
        }
        bare.push(start.elapsed());
        native.extend((0..CALLS).map(|number| files.read_natively(number)));
        let mut agent = agent(registry, round);
        let start = Instant::now();
        let run = agent.run("go on").await;
        looped.push(start.elapsed());
        assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
    }
    let per_call = |samples: &mut Vec<_>| median_us(samples) / CALLS as f64;
    let (bare, looped) = (per_call(&mut bare), per_call(&mut looped));
    report.reference("`echo` through the registry, a call", bare, "µs");
    let here = Slowness::of_kernel(median_us(&mut native));
    report.at_most_here("what a loop adds to it", looped - bare, 20.0, "µs", here);
}

/// One turn of calls, one after the other as in the registry's turn, then the answer.
fn agent(registry: &Arc<ToolRegistry>, round: usize) -> AgentLoop {
    let calls = (0..CALLS).map(|number| {
        Delta::ToolCall(ToolCallDelta {
            index: number as u64,
            id: Some(format!("call-{number}")),
            name: Some("echo".to_owned()),
            arguments: Some(message(number)),
        })
    });
    let script = ScriptedProvider::new()
        .then(calls.chain([Delta::End(StopReason::ToolCalls)]))
        .then([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)]);
    let mut config = AgentConfig::new(format!("looped-{round}"));
    config.strategy = portcullis::agent::ExecutionStrategy::Sequential;
    let executor = RegistryExecutor::new(Arc::clone(registry), approving());
    AgentLoop::new(config, (), InMemoryMessageStore::new(), script, executor)
}

fn message(number: usize) -> String {
    format!("{{\"message\": \"number {number}\"}}")
}

/// Events of running calls that nobody reads.
pub(crate) fn slow_reader(report: &mut Report) {
    let (sender, receiver) = event_channel(NonZeroUsize::new(1024).expect("1024 is not 0"));
    let tell = |number: usize| {
        sender.emit_now(AgentEvent::Tool(portcullis_types::ToolEvent::Update {
            call_id: format!("call-{}", number % 10),
            partial: portcullis_types::ToolOutput::text("x".repeat(1024)),
        }));
    };
    (0..EVENTS).for_each(tell);
    let before = resident_bytes(std::process::id());
    (0..EVENTS).for_each(tell);
    let grown = resident_bytes(std::process::id()).saturating_sub(before);
    assert!(receiver.coalesced() > 0, "nobody read, and nothing was joined");
    report.at_most("growth over 10 000 events that nobody reads", grown as f64 / 1e6, 1.0, "MB");
}
