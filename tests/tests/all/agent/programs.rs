//! Programs written for another agent, on this one's tools.

use std::sync::Arc;

use portcullis::{
    OwnSidecar,
    agent::{Delta, Provider, ProviderError, ScriptedProvider, StopReason, ToolCallDelta},
    compat::yoagent::{agent::Agent, provider::StreamProvider, types::AgentEvent},
};
use portcullis_tests::{World, binary};
use portcullis_tools::{approval::ApproveAll, audit::Event, shell::ShellPlace};
use serde_json::json;

/// A model that lists, writes, edits, searches and runs a command, one call a turn.
fn script() -> ScriptedProvider {
    let calls = [
        ("file_write", json!({"path": "/shared/plan.md", "content": "one\ntwo\n"})),
        ("file_edit", json!({"path": "/shared/plan.md", "old_text": "two", "new_text": "three"})),
        ("file_list", json!({"path": "/shared"})),
        ("file_search", json!({"path": "/shared", "query": "three"})),
        ("file_read", json!({"path": "/shared/plan.md"})),
        ("shell_exec", json!({"command": "wc -l < /shared/plan.md"})),
    ];
    let turn = |script: ScriptedProvider, (tool, arguments): (&str, serde_json::Value)| {
        let call = ToolCallDelta {
            index: 0,
            id: Some(format!("{tool}-1")),
            name: Some(tool.to_owned()),
            arguments: Some(arguments.to_string()),
        };
        script.then([Delta::ToolCall(call), Delta::End(StopReason::ToolCalls)])
    };
    calls
        .into_iter()
        .fold(ScriptedProvider::new(), turn)
        .then([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)])
}

struct Model;

impl StreamProvider for Model {
    fn connect(&self, _key: &str, _model: &str) -> Result<Box<dyn Provider>, ProviderError> {
        Ok(Box::new(script()))
    }
}

/// Of each call: its tool, and whether its end is an error.
async fn ends(agent: &mut Agent) -> Vec<(String, bool)> {
    let mut events = agent.prompt("go").await;
    let mut ends = Vec::new();
    while let Some(event) = events.recv().await {
        if let AgentEvent::ToolExecutionEnd { tool_name, is_error, .. } = event {
            ends.push((tool_name, is_error));
        }
    }
    ends
}

const TOOLS: [&str; 6] = ["file_write", "file_edit", "file_list", "file_search", "file_read", "shell_exec"];

#[tokio::test]
async fn an_agent_of_specification_002_has_the_tools_of_a_workspace_where_it_is_given_one() {
    let world = World::new();
    let place = ShellPlace::Own(Arc::new(OwnSidecar::new(binary())));
    let builder = world.builder().await.expect("bootstraps").shell(place);
    let mut agent = Agent::new(Model).with_runtime(builder).with_approver(ApproveAll);
    let all_well: Vec<_> = TOOLS.iter().map(|tool| ((*tool).to_owned(), false)).collect();
    assert_eq!(ends(&mut agent).await, all_well);
    assert_eq!(std::fs::read_to_string(world.shared("plan.md")).expect("written"), "one\nthree\n");
    let rows = world.rows();
    let ended: Vec<&str> = rows.iter().filter(|row| row.event == Event::End).map(|row| &*row.tool).collect();
    assert_eq!(ended, TOOLS);
    let command = rows.last().expect("rows");
    assert_eq!(command.approval.as_deref(), Some("approved"));
    assert!(command.posture.is_some(), "confined as the workspace's policy says");
}

#[tokio::test]
async fn without_somebody_to_ask_its_commands_do_not_run() {
    let world = World::new();
    let place = ShellPlace::Own(Arc::new(OwnSidecar::new(binary())));
    let builder = world.builder().await.expect("bootstraps").shell(place);
    let ends = ends(&mut Agent::new(Model).with_runtime(builder)).await;
    assert_eq!(ends.last(), Some(&("shell_exec".to_owned(), true)));
    let last = world.rows().pop().expect("a row");
    assert_eq!(last.code.as_deref(), Some("approval_unavailable"));
}

#[tokio::test]
async fn tools_and_runtime_can_be_given_in_either_order_and_a_name_only_once() {
    for runtime_first in [true, false] {
        let world = World::new();
        let builder = world.builder().await.expect("bootstraps");
        let own = || portcullis::compat::yoagent::tools::default_tools();
        let agent = Agent::new(Model);
        let mut agent = match runtime_first {
            true => agent.with_runtime(builder).with_tools(own()),
            false => agent.with_tools(own()).with_runtime(builder),
        };
        let refused = agent.registry().expect_err("two of one name");
        assert!(refused.contains("two tools are named"), "{refused}");
    }
}
