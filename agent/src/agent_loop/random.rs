//! Property tests of whole runs. The run ends in every case, and leaves a conversation that providers accept,
//! with one result for each call.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

use proptest::prelude::*;

use super::*;
use crate::{
    Delta, ExecutionStrategy, ProviderErrorKind, StopReason, ToolCallDelta,
    testing::{KINDS, ScriptStep, TestAgent},
};

/// A person's action during a run.
#[derive(Debug, Clone)]
enum Action {
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
            model_idle_timeout: Duration::from_secs(10),
            ..AgentConfig::new("agent")
        },
    )
}

fn tool() -> impl Strategy<Value = String> {
    let known =
        ("[rwu]", prop::sample::select(KINDS.to_vec())).prop_map(|(prefix, kind)| format!("{prefix}_{kind}"));
    prop_oneof![8 => known, 1 => Just(String::new()), 1 => Just("not a/tool".to_owned())]
}

fn delta() -> impl Strategy<Value = ScriptStep> {
    let id = prop::sample::select(vec!["", "a", "b", "c", "a b", "d"]);
    let arguments = prop::sample::select(vec!["", "{}", r#"{"ms":50}"#, "{}{}", r#"{"a"#, "x"]);
    let non_empty = |text: String| (!text.is_empty()).then_some(text);
    (0..5_u64, id, prop::option::of(tool()), arguments).prop_map(move |(index, id, name, arguments)| {
        ScriptStep::Delta(Delta::ToolCall(ToolCallDelta {
            index,
            id: non_empty(id.to_owned()),
            name,
            arguments: non_empty(arguments.to_owned()),
        }))
    })
}

fn step() -> impl Strategy<Value = ScriptStep> {
    prop_oneof![
        10 => delta(),
        3 => Just(ScriptStep::Delta(Delta::Text("text".into()))),
        1 => Just(ScriptStep::Delta(Delta::Thinking("hm".into()))),
        2 => (0..100_u64).prop_map(|ms| ScriptStep::Wait(Duration::from_millis(ms))),
    ]
}

fn last_step() -> impl Strategy<Value = Option<ScriptStep>> {
    let end = |stop: StopReason| Just(Some(ScriptStep::Delta(Delta::End(stop))));
    prop_oneof![
        30 => end(StopReason::ToolCalls),
        10 => end(StopReason::Stop),
        4 => end(StopReason::Length),
        1 => end(StopReason::ContentFilter),
        2 => end(StopReason::Other("odd".into())),
        1 => Just(None),
        1 => Just(Some(ScriptStep::Fail(ProviderErrorKind::Transport))),
        1 => Just(Some(ScriptStep::Panic)),
        1 => Just(Some(ScriptStep::Hang)),
    ]
}

fn turn() -> impl Strategy<Value = Vec<ScriptStep>> {
    (prop::collection::vec(step(), 0..8), last_step()).prop_map(|(mut steps, last_step)| {
        steps.extend(last_step);
        steps
    })
}

fn actions() -> impl Strategy<Value = Vec<(u64, Action)>> {
    let action =
        prop_oneof![4 => Just(Action::Steer), 2 => Just(Action::FollowUp), 1 => Just(Action::Cancel)];
    prop::collection::vec((0..400_u64, action), 0..4)
}

/// Performs the actions at their times.
async fn perform_all(handle: &AgentHandle, actions: &[(u64, Action)]) {
    let perform = |(ms, action): &(u64, Action)| {
        let (handle, ms, action) = (handle.clone(), *ms, action.clone());
        async move {
            tokio::time::sleep(Duration::from_millis(ms)).await;
            match action {
                Action::Steer => handle.steer("wait").expect("room"),
                Action::FollowUp => handle.follow_up("more").expect("room"),
                Action::Cancel => handle.cancel(),
            }
        }
    };
    futures_util::future::join_all(actions.iter().map(perform)).await;
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
        actions in actions(),
        never_blocks in any::<bool>(),
    ) {
        runtime().block_on(async {
            let mut stage = TestAgent::with_config(config, turns);
            stage.tools.never_blocks.store(never_blocks, std::sync::atomic::Ordering::SeqCst);
            let handle = stage.agent.handle();
            let person = perform_all(&handle, &actions);
            let running = async {
                // An hour is longer than all hangs together: a silent model and unresponsive tools in each
                // turn.
                let hour = Duration::from_secs(3600);
                tokio::time::timeout(hour, stage.agent.run("go")).await.expect("a run ends")
            };
            let (run, ()) = futures_util::join!(running, person);
            // `check` tests the invariants of every run on the conversation and the events. The script tests
            // every conversation that it receives.
            stage.check(&run);
            assert_eq!(stage.tools.running(), 0, "no call goes on after its run");
        });
    }

    #[test]
    fn whenever_a_reader_stops_it_misses_no_end_of_a_cancelled_run(
        config in config(),
        turns in prop::collection::vec(turn(), 1..8),
        actions in actions(),
        cancelled_after in 0..400_u64,
        capacity in 1..8_usize,
        read_count in 0..60_usize,
    ) {
        runtime().block_on(async {
            let (mut stage, mut receiver) = TestAgent::with_channel(capacity, config, turns);
            let (notes, handle) = (stage.notes.clone(), stage.agent.handle());
            let actions = [actions, vec![(cancelled_after, Action::Cancel)]].concat();
            let reading = async {
                for _ in 0..read_count {
                    notes.emit_now(receiver.recv().await.expect("an event"));
                }
                std::future::pending::<AgentRunResult>().await
            };
            let running = async {
                let hour = Duration::from_secs(3600);
                let running = tokio::time::timeout(hour, stage.agent.run("go"));
                tokio::select! {
                    run = running => run.expect("a run ends"),
                    run = reading => run,
                }
            };
            let (run, ()) = futures_util::join!(running, perform_all(&handle, &actions));
            while let Some(event) = receiver.try_recv() {
                notes.emit_now(event);
            }
            stage.check(&run);
        });
    }
}
