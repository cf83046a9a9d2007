//! Specification 000: its trait, and its lines that build a registry. They run in a process with an
//! operator's policy in the default place and a state folder of the test.

use std::{fs, num::NonZeroU32};

use portcullis_adapters::{
    event_formats::{EventFormat, EverrunsEvents},
    everruns::{self, async_trait, AgentLoopError, Tool, ToolExecutionResult, ToolPolicy},
};
use portcullis_agent::{
    event_channel, AgentConfig, EventSender, ExecutionStrategy, InMemoryMessageStore, ScriptedProvider,
    DEFAULT_EVENT_CAPACITY,
};
use portcullis_testing::{call_rows, Fixture};
use portcullis_tools::{
    audit::{self, Confinement, RowEvent},
    BootstrapError, Caller, ToolRegistry,
};
use portcullis_types::{MessageRole, SafetyTier, ToolErrorKind};
use serde_json::{json, Value};

use crate::{
    alone::{is_separate_process, run_in_separate_process},
    support::{call, record_events, Stage},
};

/// The trait as the specification states it.
#[expect(unreachable_pub, reason = "the specification's own word")]
mod stated {
    use portcullis_adapters::everruns::{async_trait, ToolExecutionResult, ToolPolicy, Value};

    example!("000_trait.rs");
}

/// The specification's lines about the registry, in functions that return it. The test supplies a tool and
/// the loop's other arguments, which the specification does not show.
#[expect(clippy::let_and_return, reason = "the lines are as they are")]
mod lines {
    use portcullis_adapters::everruns::*;

    use super::{Built, Config, Emitter, Llm, MyCustomTool, Store};

    example!("000_defaults.rs");
    example!("000_custom.rs");
}

/// A registry may fail to build: a name is taken, or the state folder is not writable.
type Built = Result<ToolRegistry, BootstrapError>;

type Config = AgentConfig;
type Emitter = EventSender;
type Store = InMemoryMessageStore;
type Llm = ScriptedProvider;

/// A tool that can return every outcome of the interface.
struct MyCustomTool;

#[async_trait]
impl Tool for MyCustomTool {
    fn name(&self) -> &str {
        "my_custom_tool"
    }
    fn description(&self) -> &str {
        "Looks a city up."
    }
    fn parameters_schema(&self) -> Value {
        json!({"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]})
    }
    async fn execute(&self, arguments: Value) -> ToolExecutionResult {
        match arguments["city"].as_str() {
            Some("Paris") => ToolExecutionResult::Success(json!({"city": "Paris", "people": 2_100_000})),
            Some("Atlantis") => ToolExecutionResult::ToolError("City not found".to_owned()),
            _ => ToolExecutionResult::internal_error_msg(format!("no answer of {SECRET}")),
        }
    }
}

/// Text that only the operator may read.
const SECRET: &str = "db.internal.example";

/// Adapts a tool of the stated trait to our adapter's trait: each method has the same signature.
struct AsOurs<T>(T);

#[async_trait]
impl<T: stated::Tool> Tool for AsOurs<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn parameters_schema(&self) -> Value {
        self.0.parameters_schema()
    }
    async fn execute(&self, arguments: Value) -> ToolExecutionResult {
        self.0.execute(arguments).await
    }
    fn policy(&self) -> ToolPolicy {
        self.0.policy()
    }
}

/// Adapts a tool of our adapter's trait to the stated trait, with the stated default policy.
struct AsStated<T>(T);

#[async_trait]
impl<T: Tool> stated::Tool for AsStated<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn parameters_schema(&self) -> Value {
        self.0.parameters_schema()
    }
    async fn execute(&self, arguments: Value) -> ToolExecutionResult {
        self.0.execute(arguments).await
    }
}

/// An operator's policy for several programs, not all of which have the tool.
const OPERATORS_POLICY: &str =
    "[tools.my_custom_tool]\nenabled = true\noptional = true\n[tools.get_current_time]\nenabled = true\n";

#[tokio::test]
async fn the_lines_build_registries_under_the_operators_policy() {
    if is_separate_process() {
        return check_the_lines().await;
    }
    let fixture = Fixture::new().with_policy(OPERATORS_POLICY);
    let name = "the_lines_build_registries_under_the_operators_policy";
    if run_in_separate_process(module_path!(), name, &fixture, &[]).is_none() {
        return;
    }
    let rows = call_rows(&fixture.state().join("portcullis/in-process"));
    let called: Vec<&str> =
        rows.iter().filter(|row| row.event == RowEvent::End).map(|row| &*row.tool).collect();
    let custom = "my_custom_tool";
    let unknown = "unknown_tool";
    assert_eq!(
        called,
        ["echo", "divide", "get_current_time", custom, custom, custom, "echo", unknown, unknown]
    );
    for row in rows.iter().filter(|row| &*row.tool == custom) {
        assert_eq!(row.confinement, Some(Confinement::Native));
        assert_eq!(row.tier, Some(SafetyTier::SideEffecting), "the interface has no tiers");
    }
}

/// Runs the part of the test in the separate process.
async fn check_the_lines() {
    let caller = Caller::new("tester", "run");
    {
        let registry = lines::defaults().expect("builds");
        for name in ["get_current_time", "echo", "add", "subtract", "multiply", "divide"] {
            assert!(registry.get(name).is_some(), "{name}");
        }
        let result = call(&registry, "echo", &json!({"message": "hi"}), &caller).await;
        assert_eq!(ToolExecutionResult::from(result).model_value(), json!({"echoed": "hi", "length": 2}));
        let division = call(&registry, "divide", &json!({"a": 1, "b": 0}), &caller).await;
        assert_eq!(ToolExecutionResult::from(division).model_value(), json!({"error": "division by zero"}));
    }
    check_run_with_an_answer().await;
    check_run_without_an_answer().await;
}

/// The script of a run's model: every outcome of a tool, and an unknown tool.
const QUESTIONS: &str = r#"
{"expect": {"messages": 1}}
{"call": {"index": 0, "id": "c1", "name": "get_current_time", "arguments": "{\"format\":\"unix\"}"}}
{"call": {"index": 1, "id": "c2", "name": "my_custom_tool", "arguments": "{\"city\":\"Paris\"}"}}
{"call": {"index": 2, "id": "c3", "name": "my_custom_tool", "arguments": "{\"city\":\"Atlantis\"}"}}
{"call": {"index": 3, "id": "c4", "name": "my_custom_tool", "arguments": "{\"city\":\"Nowhere\"}"}}
{"call": {"index": 4, "id": "c5", "name": "echo", "arguments": "{\"message\":\"hi\"}"}}
{"end": "tool_calls"}
{"expect": {"messages": 7}}
{"text": "Done."}
{"end": "stop"}
"#;

/// Runs the loop of the lines: start, call, result, and the model again.
async fn check_run_with_an_answer() {
    let mut config = AgentConfig::new("tester");
    config.strategy = ExecutionStrategy::Sequential;
    let (emitter, mut events) = event_channel(DEFAULT_EVENT_CAPACITY);
    let store = InMemoryMessageStore::new();
    let llm = ScriptedProvider::from_lines(QUESTIONS).expect("a script");
    let mut agent_loop = lines::custom(config, emitter, store.clone(), llm);
    assert_eq!(agent_loop.run("Ask all of them.").await.expect("an answer"), "Done.");

    let mut event_format = EverrunsEvents::default();
    let mut values = Vec::new();
    while let Some(event) = events.try_recv() {
        values.extend(event_format.values(&event));
    }
    let values_of_kind =
        |kind: &str| -> Vec<&Value> { values.iter().filter(|value| value["type"] == kind).collect() };
    let position_of = |kind: &str, id: &str| {
        values.iter().position(|value| value["type"] == kind && value["toolCallId"] == id)
    };
    for id in ["c1", "c2", "c3", "c4", "c5"] {
        assert!(
            position_of("ToolCallStart", id).is_some()
                && position_of("ToolCallStart", id) < position_of("ToolCallResult", id),
            "{id}"
        );
    }
    let results: Vec<&Value> =
        values_of_kind("ToolCallResult").into_iter().map(|value| &value["content"]).collect();
    assert!(results[0]["timestamp"].is_i64(), "{results:?}");
    assert_eq!(*results[1], json!({"city": "Paris", "people": 2_100_000}));
    assert_eq!(*results[2], json!({"error": "City not found"}));
    assert_eq!(*results[3], json!({"error": "An internal error occurred while executing the tool"}));
    assert!(results[4]["error"].is_string(), "only registered tools run");
    assert_eq!((values_of_kind("StepStarted").len(), values_of_kind("RunFinished").len()), (2, 1));

    let messages = store.messages();
    let roles: Vec<MessageRole> = messages.iter().map(|message| message.role).collect();
    let (user, assistant, tool) = (MessageRole::User, MessageRole::Assistant, MessageRole::Tool);
    assert_eq!(roles, [user, assistant, tool, tool, tool, tool, tool, assistant]);
    assert_eq!(messages[4].text(), "Tool execution failed: City not found");
    let everything = format!("{values:?} {}", serde_json::to_string(&messages).expect("JSON"));
    assert!(!everything.contains(SECRET));
}

/// Runs a model that never answers.
async fn check_run_without_an_answer() {
    let mut config = AgentConfig::new("tester");
    config.max_iterations = NonZeroU32::new(2).expect("not 0");
    let turn = |n: u32| {
        let arguments = format!("{{\\\"city\\\":\\\"Nowhere {n}\\\"}}");
        let call = r#"{"call": {"index": 0, "id": "c", "name": "unknown_tool", "arguments": "#;
        format!("{call}\"{arguments}\"}}}}\n{{\"end\": \"tool_calls\"}}\n")
    };
    let llm = ScriptedProvider::from_lines(&(0..3).map(turn).collect::<String>()).expect("a script");
    let (emitter, _) = event_channel(DEFAULT_EVENT_CAPACITY);
    let mut agent_loop = lines::custom(config, emitter, InMemoryMessageStore::new(), llm);
    let error = agent_loop.run("Go on.").await.expect_err("no answer");
    assert!(matches!(error, AgentLoopError::MaxIterationsReached(2)), "{error:?}");
}

#[tokio::test]
async fn a_tool_goes_there_and_back_through_the_stated_trait() {
    let stage = Stage::enabling("my_custom_tool", AsOurs(AsStated(MyCustomTool)));
    let tool = stage.registry.get("my_custom_tool").expect("registered");
    assert_eq!(tool.descriptor().declared_policy, ToolPolicy::Auto, "the stated default");
    let result = stage.call("my_custom_tool", json!({"city": "Paris"})).await;
    let output = result.into_result().expect("a result");
    let expected = json!({"city": "Paris", "people": 2_100_000});
    assert_eq!((output.joined_text(), output.structured), (expected.to_string(), Some(expected)));
}

#[tokio::test]
async fn an_internal_error_is_hidden_from_all_but_the_operators_log() {
    let stage = Stage::enabling("my_custom_tool", MyCustomTool);
    let mut caller = Caller::new("tester", "run");
    let events = record_events(&mut caller);
    let result = call(&stage.registry, "my_custom_tool", &json!({"city": "Nowhere"}), &caller).await;
    assert_eq!(result.outcome.error().expect("internal").kind(), ToolErrorKind::Internal);
    assert!(!result.model_text().contains(SECRET) && !result.details.to_string().contains(SECRET));
    assert!(!events.lock().expect("not poisoned").join("\n").contains(SECRET));
    let log = fs::read_to_string(audit::log_path(&stage.fixture.state())).expect("readable");
    assert!(log.contains("\"internal\"") && !log.contains(SECRET), "{log}");
    let execution_result = ToolExecutionResult::from(result);
    assert!(!execution_result.model_value().to_string().contains(SECRET));
    let everruns::ToolExecutionResult::InternalError(detail) = execution_result else {
        panic!("{execution_result:?}")
    };
    assert!(detail.to_string().contains(SECRET), "the operator's program has the cause");
}

#[tokio::test]
async fn a_tool_that_requires_approval_waits_for_one() {
    struct Careful;

    #[async_trait]
    impl Tool for Careful {
        fn name(&self) -> &str {
            "careful"
        }
        fn description(&self) -> &str {
            "Asks first."
        }
        fn parameters_schema(&self) -> Value {
            json!({"type": "object"})
        }
        async fn execute(&self, _arguments: Value) -> ToolExecutionResult {
            ToolExecutionResult::success("done")
        }
        fn policy(&self) -> ToolPolicy {
            ToolPolicy::RequiresApproval
        }
    }

    let boxed: Box<dyn Tool> = Box::new(Careful);
    let stage = Stage::enabling("careful", boxed);
    let refused = stage.call("careful", json!({})).await;
    assert_eq!(refused.into_result().expect_err("nobody is asked").kind(), ToolErrorKind::Denied);
    let caller = portcullis_testing::approving_caller();
    let done = call(&stage.registry, "careful", &json!({}), &caller).await;
    assert_eq!(ToolExecutionResult::from(done).model_value(), json!("done"));
}
