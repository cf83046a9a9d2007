//! Programs that were written for another agent, with the tools of Portcullis.

use std::sync::Arc;

use async_trait::async_trait;
use portcullis::OwnSidecar;
use portcullis_adapters::yoagent::{
    agent::Agent,
    provider::StreamProvider,
    tools::default_tools,
    types::{AgentEvent, AgentTool, ToolContext, ToolError, ToolResult},
};
use portcullis_agent::{Delta, Provider, ProviderError, ScriptedProvider, StopReason, ToolCallDelta};
use portcullis_testing::{CallOutcome, Fixture, binary};
use portcullis_tools::{
    PolicyFiles, ToolRegistry, approval::ApproveAll, audit::RowEvent, shell::ShellSource,
};
use portcullis_types::SandboxTier;
use serde_json::json;

/// Creates a model that writes, edits, lists, searches, reads and runs a command, one call per turn.
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

/// Runs the agent. Returns the tool of each call, and whether the call ended in an error.
async fn ended_calls(agent: &mut Agent) -> Vec<(String, bool)> {
    let mut events = agent.prompt("go").await;
    let mut ended_calls = Vec::new();
    while let Some(event) = events.recv().await {
        if let AgentEvent::ToolExecutionEnd { tool_name, is_error, .. } = event {
            ended_calls.push((tool_name, is_error));
        }
    }
    ended_calls
}

const TOOLS: [&str; 6] = ["file_write", "file_edit", "file_list", "file_search", "file_read", "shell_exec"];

#[tokio::test]
async fn an_agent_of_specification_002_gets_a_workspaces_tools() {
    let fixture = Fixture::new();
    let shell = ShellSource::Own(Arc::new(OwnSidecar::new(binary())));
    let builder = fixture.builder().await.expect("bootstraps").shell(shell);
    let mut agent = Agent::new(Model).with_runtime(builder).with_approver(ApproveAll);
    let all_succeeded: Vec<_> = TOOLS.iter().map(|tool| ((*tool).to_owned(), false)).collect();
    assert_eq!(ended_calls(&mut agent).await, all_succeeded);
    assert_eq!(std::fs::read_to_string(fixture.shared("plan.md")).expect("written"), "one\nthree\n");
    let rows = fixture.rows();
    let ended: Vec<&str> =
        rows.iter().filter(|row| row.event == RowEvent::End).map(|row| &*row.tool).collect();
    assert_eq!(ended, TOOLS);
    let command = rows.last().expect("rows");
    assert_eq!(command.approval.as_deref(), Some("approved"));
    assert!(command.posture.is_some(), "confined as the workspace's policy says");
}

#[tokio::test]
async fn without_an_approver_its_commands_do_not_run() {
    let fixture = Fixture::new();
    let shell = ShellSource::Own(Arc::new(OwnSidecar::new(binary())));
    let builder = fixture.builder().await.expect("bootstraps").shell(shell);
    let ended_calls = ended_calls(&mut Agent::new(Model).with_runtime(builder)).await;
    assert_eq!(ended_calls.last(), Some(&("shell_exec".to_owned(), true)));
    let last = fixture.rows().pop().expect("a row");
    assert_eq!(last.code.as_deref(), Some("approval_unavailable"));
}

/// An embedder's tool that claims to be a placeholder for a shipped tool.
struct Claimant(&'static str);

#[async_trait]
impl AgentTool for Claimant {
    fn name(&self) -> &str {
        self.0
    }
    fn label(&self) -> &str {
        "Claimant"
    }
    fn description(&self) -> &str {
        "Is another."
    }
    fn parameters_schema(&self) -> serde_json::Value {
        json!({"type": "object", "properties": {}, "required": []})
    }
    async fn execute(&self, _: serde_json::Value, _: ToolContext) -> Result<ToolResult, ToolError> {
        Err(ToolError::Failed("it ran".into()))
    }
    fn stands_for_shipped(&self) -> bool {
        true
    }
}

#[tokio::test]
async fn the_default_tools_run_under_the_shipped_policy() {
    let fixture = Fixture::new();
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    let policy = files.load(SandboxTier::Process).expect("a policy");
    let plain_builder = ToolRegistry::builder().policy(policy).state(fixture.state());
    let claimants: [Box<dyn AgentTool>; 2] = [Box::new(Claimant("echo")), Box::new(Claimant("mine"))];
    let tools = default_tools().into_iter().chain(claimants).collect();
    let mut agent = Agent::new(Model).with_runtime(plain_builder).with_tools(tools);
    let registry = agent.registry().expect("registers");
    let offered = registry.offered();
    let offered: Vec<&str> = offered.iter().map(|tool| tool.decl().name.as_str()).collect();
    let expected = ["add", "divide", "echo", "get_current_time", "multiply", "output_read", "subtract"];
    assert_eq!(offered, expected);
    for (tool, arguments) in
        [("get_current_time", json!({})), ("echo", json!({"message": "m"})), ("add", json!({"a": 1, "b": 2}))]
    {
        let answer = CallOutcome::run(&registry, tool, arguments).await;
        assert!(answer.0.outcome.is_output(), "{tool}: {answer:?}");
    }
}

#[tokio::test]
async fn default_tools_and_a_runtime_combine_in_either_order() {
    for runtime_first in [true, false] {
        let fixture = Fixture::new();
        let builder = fixture.builder().await.expect("bootstraps");
        let agent = Agent::new(Model);
        let mut agent = if runtime_first {
            agent.with_runtime(builder).with_tools(default_tools())
        } else {
            agent.with_tools(default_tools()).with_runtime(builder)
        };
        let registry = agent.registry().expect("registers");
        for tool in ["echo", "file_read", "file_write", "file_edit", "file_list", "file_search"] {
            assert!(registry.offered().iter().any(|offered| offered.decl().name == tool), "{tool}");
        }
        assert!(registry.get("shell_exec").is_some(), "it is known, and has no place to run");
        assert!(registry.offered().iter().all(|tool| tool.decl().name != "shell_exec"));
    }
}
