//! Calls that the agent loop itself refuses have rows, like all other calls.

use std::sync::Arc;

use portcullis_agent::{
    AgentConfig, AgentLoop, Delta, ExecutionStrategy, InMemoryMessageStore, ScriptedProvider, StopReason,
    ToolCallDelta,
};
use portcullis_testing::Fixture;
use portcullis_tools::{
    RegistryExecutor,
    audit::{Row, RowEvent},
};

use crate::support::{Spy, caller, fixture_enabling, native_registry};

fn tool_call_delta(index: u64, id: &str, tool: &str, arguments: &str) -> Delta {
    let some = |text: &str| Some(text.to_owned());
    Delta::ToolCall(ToolCallDelta { index, id: some(id), name: some(tool), arguments: some(arguments) })
}

fn agent(fixture: &Fixture, spy: Spy, answer: impl IntoIterator<Item = Delta>) -> AgentLoop {
    let script = ScriptedProvider::new()
        .then(answer)
        .then([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)]);
    let mut config = AgentConfig::new("agent");
    config.run_id = Some("run".to_owned());
    config.strategy = ExecutionStrategy::Sequential;
    let executor = RegistryExecutor::new(Arc::new(native_registry(fixture, [spy])), caller());
    AgentLoop::new(config, (), InMemoryMessageStore::new(), script, executor)
}

/// Returns the id, tool and error code of each call that ended.
fn ended_calls(fixture: &Fixture) -> Vec<(String, String, Option<String>)> {
    let code = |row: Row| {
        assert_eq!((row.agent.as_deref(), row.run_id.as_deref()), (Some("agent"), Some("run")));
        (row.call_id.to_string(), row.tool.to_string(), row.code.map(|code| code.to_string()))
    };
    fixture.rows().into_iter().filter(|row| row.event == RowEvent::End).map(code).collect()
}

fn expected_row(id: &str, tool: &str, code: Option<&str>) -> (String, String, Option<String>) {
    (id.to_owned(), tool.to_owned(), code.map(str::to_owned))
}

#[tokio::test]
async fn a_call_that_was_cut_off_has_its_row() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::repeating("spy");
    let calls = spy.calls();
    let cut_off_answer = [
        tool_call_delta(0, "whole", "spy", r#"{"n": 1}"#),
        tool_call_delta(1, "cut", "spy", r#"{"n": "#),
        Delta::End(StopReason::Length),
    ];
    let run = agent(&fixture, spy, cut_off_answer).run("go").await;
    assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    let ended_calls = ended_calls(&fixture);
    let ids: Vec<&str> = ended_calls.iter().map(|(id, ..)| id.as_str()).collect();
    assert_eq!(ids, ["whole", "cut"]);
    assert!(ended_calls.iter().all(|(_, tool, code)| tool == "spy" && code.is_some()), "{ended_calls:?}");
}

#[tokio::test]
async fn a_skipped_call_has_a_row_and_one_that_ran_has_no_second() {
    let fixture = fixture_enabling(&["spy"]);
    let agent_handle = Arc::new(std::sync::OnceLock::<portcullis_agent::AgentHandle>::new());
    let handle = Arc::clone(&agent_handle);
    let spy = Spy::new("spy", move |_, _| {
        let handle = Arc::clone(&handle);
        async move {
            handle.get().expect("set").steer("wait").expect("room");
            Ok(portcullis_types::ToolOutput::text("ran"))
        }
    });
    let two_calls = [
        tool_call_delta(0, "a", "spy", "{}"),
        tool_call_delta(1, "b", "spy", "{}"),
        Delta::End(StopReason::ToolCalls),
    ];
    let mut agent = agent(&fixture, spy, two_calls);
    assert!(agent_handle.set(agent.handle()).is_ok());
    let run = agent.run("go").await;
    assert_eq!(run.answer(), Some("done"), "{:?}", run.end);
    assert_eq!(
        ended_calls(&fixture),
        [expected_row("a", "spy", None), expected_row("b", "spy", Some("skipped"))]
    );
}
