//! Random runs: after any event at any time the run ends, and leaves a conversation that providers accept,
//! with one result for each call.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{
    Delta, ExecutionStrategy, ProviderErrorKind, StopReason, ToolCallDelta,
    testing::{KINDS, Stage, Step},
};

/// An action of the person, with its time.
#[derive(Debug, Clone)]
enum Act {
    Steer,
    FollowUp,
    Cancel,
}

fn strategy() -> impl Strategy<Value = ExecutionStrategy> {
    prop_oneof![
        Just(ExecutionStrategy::Parallel),
        Just(ExecutionStrategy::Sequential),
        (1..4_usize)
            .prop_map(|size| ExecutionStrategy::Batched { size: NonZeroUsize::new(size).expect("not 0") }),
    ]
}

fn config() -> impl Strategy<Value = AgentConfig> {
    let timeout = prop::option::weighted(0.3, (1..200_u64).prop_map(Duration::from_millis));
    let grace = (0..100_u64).prop_map(Duration::from_millis);
    (strategy(), 1..4_usize, 1..5_u32, timeout, grace).prop_map(
        |(strategy, concurrency, turns, timeout, grace)| AgentConfig {
            strategy,
            concurrency: NonZeroUsize::new(concurrency).expect("not 0"),
            max_iterations: NonZeroU32::new(turns).expect("not 0"),
            turn_timeout: timeout,
            grace,
            model_silence: Duration::from_secs(10),
            ..AgentConfig::new("agent")
        },
    )
}

fn tool() -> impl Strategy<Value = String> {
    let known =
        ("[rwu]", prop::sample::select(KINDS.to_vec())).prop_map(|(prefix, kind)| format!("{prefix}_{kind}"));
    prop_oneof![8 => known, 1 => Just(String::new()), 1 => Just("not a/tool".to_owned())]
}

fn delta() -> impl Strategy<Value = Step> {
    let id = prop::sample::select(vec!["", "a", "b", "c", "a b", "d"]);
    let arguments = prop::sample::select(vec!["", "{}", r#"{"ms":50}"#, "{}{}", r#"{"a"#, "x"]);
    let some = |text: String| (!text.is_empty()).then_some(text);
    (0..5_u64, id, prop::option::of(tool()), arguments).prop_map(move |(index, id, name, arguments)| {
        Step::Delta(Delta::ToolCall(ToolCallDelta {
            index,
            id: some(id.to_owned()),
            name,
            arguments: some(arguments.to_owned()),
        }))
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        10 => delta(),
        3 => Just(Step::Delta(Delta::Text("text".into()))),
        1 => Just(Step::Delta(Delta::Thinking("hm".into()))),
        2 => (0..100_u64).prop_map(|ms| Step::Wait(Duration::from_millis(ms))),
    ]
}

fn last() -> impl Strategy<Value = Option<Step>> {
    let end = |stop: StopReason| Just(Some(Step::Delta(Delta::End(stop))));
    prop_oneof![
        30 => end(StopReason::ToolCalls),
        10 => end(StopReason::Stop),
        4 => end(StopReason::Length),
        1 => end(StopReason::ContentFilter),
        2 => end(StopReason::Other("odd".into())),
        1 => Just(None),
        1 => Just(Some(Step::Fail(ProviderErrorKind::Transport))),
        1 => Just(Some(Step::Panic)),
        1 => Just(Some(Step::Hang)),
    ]
}

fn turn() -> impl Strategy<Value = Vec<Step>> {
    (prop::collection::vec(step(), 0..8), last()).prop_map(|(mut steps, last)| {
        steps.extend(last);
        steps
    })
}

fn acts() -> impl Strategy<Value = Vec<(u64, Act)>> {
    let act = prop_oneof![4 => Just(Act::Steer), 2 => Just(Act::FollowUp), 1 => Just(Act::Cancel)];
    prop::collection::vec((0..400_u64, act), 0..4)
}

/// Performs the actions at their times.
async fn act(handle: &AgentHandle, acts: &[(u64, Act)]) {
    let one = |(ms, act): &(u64, Act)| {
        let (handle, ms, act) = (handle.clone(), *ms, act.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            match act {
                Act::Steer => handle.steer("wait").expect("room"),
                Act::FollowUp => handle.follow_up("more").expect("room"),
                Act::Cancel => handle.cancel(),
            }
        }
    };
    futures_util::future::join_all(acts.iter().map(one)).await;
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build().expect("a runtime")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn every_call_has_exactly_one_result(
        config in config(),
        turns in prop::collection::vec(turn(), 1..8),
        acts in acts(),
        never_blocks in any::<bool>(),
    ) {
        runtime().block_on(async {
            let mut stage = Stage::with(config, turns);
            stage.tools.never_blocks.store(never_blocks, std::sync::atomic::Ordering::SeqCst);
            let handle = stage.agent.handle();
            let person = act(&handle, &acts);
            let running = async {
                // Longer than all the hangs together: silent models and deaf tools in each turn.
                let hour = Duration::from_secs(3600);
                tokio::time::timeout(hour, stage.agent.run("go")).await.expect("a run ends")
            };
            let (run, ()) = futures_util::join!(running, person);
            // `check` tests the invariants of every run on the conversation and the events; the script tests
            // every conversation that it is sent.
            stage.check(&run);
            assert_eq!(stage.tools.running(), 0, "no call goes on after its run");
        });
    }

    #[test]
    fn whenever_a_reader_stops_it_misses_no_end_of_a_cancelled_run(
        config in config(),
        turns in prop::collection::vec(turn(), 1..8),
        acts in acts(),
        cancelled_after in 0..400_u64,
        capacity in 1..8_usize,
        first in 0..60_usize,
    ) {
        runtime().block_on(async {
            let (mut stage, mut receiver) = Stage::with_channel(capacity, config, turns);
            let (notes, handle) = (stage.notes.clone(), stage.agent.handle());
            let acts = [acts, vec![(cancelled_after, Act::Cancel)]].concat();
            let reading = async {
                for _ in 0..first {
                    notes.emit_now(receiver.recv().await.expect("an event"));
                }
                std::future::pending::<AgentRun>().await
            };
            let running = async {
                let hour = Duration::from_secs(3600);
                let running = tokio::time::timeout(hour, stage.agent.run("go"));
                tokio::select! {
                    run = running => run.expect("a run ends"),
                    run = reading => run,
                }
            };
            let (run, ()) = futures_util::join!(running, act(&handle, &acts));
            while let Some(event) = receiver.try_recv() {
                notes.emit_now(event);
            }
            stage.check(&run);
        });
    }
}
