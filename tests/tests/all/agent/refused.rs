//! Calls that the agent loop refuses by itself have their rows, as all others.

use std::sync::Arc;

use portcullis_agent::{
    AgentConfig, AgentLoop, Delta, ExecutionStrategy, InMemoryMessageStore, ScriptedProvider, StopReason,
    ToolCallDelta,
};
use portcullis_testing::World;
use portcullis_tools::{
    RegistryExecutor,
    audit::{Event, Row},
};

use crate::support::{Spy, caller, natives, world_enabling};

fn call(index: u64, id: &str, tool: &str, arguments: &str) -> Delta {
    let some = |text: &str| Some(text.to_owned());
    Delta::ToolCall(ToolCallDelta { index, id: some(id), name: some(tool), arguments: some(arguments) })
}

fn agent(world: &World, spy: Spy, answer: impl IntoIterator<Item = Delta>) -> AgentLoop {
    let script = ScriptedProvider::new()
        .then(answer)
        .then([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)]);
    let mut config = AgentConfig::new("agent");
    config.run_id = Some("run".to_owned());
    config.strategy = ExecutionStrategy::Sequential;
    let executor = RegistryExecutor::new(Arc::new(natives(world, [spy])), caller());
    AgentLoop::new(config, (), InMemoryMessageStore::new(), script, executor)
}

/// The id, tool and error code of each call that ended.
fn ends(world: &World) -> Vec<(String, String, Option<String>)> {
    let code = |row: Row| {
        assert_eq!((row.agent.as_deref(), row.run_id.as_deref()), (Some("agent"), Some("run")));
        (row.call_id.to_string(), row.tool.to_string(), row.code.map(|code| code.to_string()))
    };
    world.rows().into_iter().filter(|row| row.event == Event::End).map(code).collect()
}

fn row(id: &str, tool: &str, code: Option<&str>) -> (String, String, Option<String>) {
    (id.to_owned(), tool.to_owned(), code.map(str::to_owned))
}

#[tokio::test]
async fn a_call_that_was_cut_off_has_its_row() {
    let world = world_enabling(&["spy"]);
    let spy = Spy::repeating("spy");
    let calls = spy.calls();
    let cut = [
        call(0, "whole", "spy", r#"{"n": 1}"#),
        call(1, "cut", "spy", r#"{"n": "#),
        Delta::End(StopReason::Length),
    ];
    let run = agent(&world, spy, cut).run("go").await;
    assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    let ends = ends(&world);
    let ids: Vec<&str> = ends.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["whole", "cut"]);
    assert!(ends.iter().all(|(_, tool, code)| tool == "spy" && code.is_some()), "{ends:?}");
}

#[tokio::test]
async fn a_skipped_call_has_a_row_and_one_that_ran_has_no_second() {
    let world = world_enabling(&["spy"]);
    let spoken = Arc::new(std::sync::OnceLock::<portcullis_agent::AgentHandle>::new());
    let handle = Arc::clone(&spoken);
    let spy = Spy::new("spy", move |_, _| {
        let handle = Arc::clone(&handle);
        async move {
            handle.get().expect("set").steer("wait").expect("room");
            Ok(portcullis_types::ToolOutput::text("ran"))
        }
    });
    let both = [call(0, "a", "spy", "{}"), call(1, "b", "spy", "{}"), Delta::End(StopReason::ToolCalls)];
    let mut agent = agent(&world, spy, both);
    assert!(spoken.set(agent.handle()).is_ok());
    let run = agent.run("go").await;
    assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
    assert_eq!(ends(&world), [row("a", "spy", None), row("b", "spy", Some("skipped"))]);
}
