//! Helpers of the specifications' tests: a registry of one tool under a policy that enables it, and a caller
//! that listens.

use std::sync::{Arc, Mutex};

use portcullis_adapters::IntoTool;
use portcullis_testing::Fixture;
use portcullis_tools::{new_call, Caller, PolicyFiles, ToolRegistry, ToolResult};
use portcullis_types::{SandboxTier, ToolEvent};
use serde_json::Value;

pub(crate) struct Stage {
    pub(crate) fixture: Fixture,
    pub(crate) registry: ToolRegistry,
}

impl Stage {
    /// Creates a stage whose policy enables the tool by its name.
    pub(crate) fn enabling<Interface>(name: &str, tool: impl IntoTool<Interface>) -> Self {
        Self::with_fixture(Fixture::new().with_policy(&format!("[tools.{name}]\nenabled = true\n")), tool)
    }

    /// Creates a stage under the fixture's policy.
    pub(crate) fn with_fixture<Interface>(fixture: Fixture, tool: impl IntoTool<Interface>) -> Self {
        let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
        let policy = files.load(SandboxTier::Process).expect("a policy");
        let builder = ToolRegistry::builder().policy(policy).state(fixture.state());
        let registry = builder.shared_tool(tool.into_tool()).build().expect("builds");
        Self { fixture, registry }
    }

    /// Makes one call as a new caller.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> ToolResult {
        call(&self.registry, tool, &arguments, &Caller::new("tester", "run")).await
    }
}

pub(crate) async fn call(
    registry: &ToolRegistry,
    tool: &str,
    arguments: &Value,
    caller: &Caller,
) -> ToolResult {
    registry.execute_with_policy(new_call(tool, arguments.to_string()), caller).await
}

/// Makes a caller record its events. The list gets one line for each event.
pub(crate) fn record_events(caller: &mut Caller) -> Arc<Mutex<Vec<String>>> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    caller.on_event = Some(Arc::new(move |event| {
        let line = match event {
            ToolEvent::Requested { tool, .. } => format!("requested {tool}"),
            ToolEvent::Started { tool, .. } => format!("started {tool}"),
            ToolEvent::Update { partial, .. } => {
                format!("update {} {}", partial.joined_text(), partial.details)
            }
            ToolEvent::Progress { text, .. } => format!("progress {text}"),
            ToolEvent::Finished { tool, error, .. } => format!("finished {tool} {}", error.is_some()),
            other => format!("{other:?}"),
        };
        sink.lock().expect("not poisoned").push(line);
    }));
    events
}
