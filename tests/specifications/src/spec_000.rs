//! Specification 000: its trait, and its lines that build a registry, in a process whose operator has a policy
//! in the usual place and whose state goes to a folder of the test's own.

use std::{fs, process::Command};

use portcullis_tests::World;
use portcullis_tools::{
    audit::{self, Confinement, Event},
    compat::everruns::{self, async_trait, Tool, ToolExecutionResult, ToolPolicy},
    BootstrapError, Caller, ToolRegistry,
};
use portcullis_types::{SafetyTier, ToolErrorKind};
use serde_json::{json, Value};

use crate::support::{call, listening, Stage};

/// The trait as it is stated.
#[expect(unreachable_pub, reason = "the specification's own word")]
mod stated {
    use portcullis_tools::compat::everruns::{async_trait, ToolExecutionResult, ToolPolicy, Value};

    include!(concat!(env!("OUT_DIR"), "/000_trait.rs"));
}

/// The registry's lines, in functions that hand out what they make. What they name and the specification
/// does not show is the test's: a tool, and the loop that takes the registry.
#[expect(clippy::let_and_return, reason = "the lines are as they are")]
mod lines {
    use portcullis_tools::compat::everruns::*;

    use super::{AgentLoop, Built, Config, Emitter, Llm, MyCustomTool, Store};

    include!(concat!(env!("OUT_DIR"), "/000_defaults.rs"));
    include!(concat!(env!("OUT_DIR"), "/000_custom.rs"));
}

/// A registry may not come about: a name is taken, the state folder is not writable.
type Built = Result<ToolRegistry, BootstrapError>;

struct Config;
struct Emitter;
struct Store;
struct Llm;

/// The loop, of which this test wants the registry alone.
struct AgentLoop {
    registry: ToolRegistry,
}

impl AgentLoop {
    fn new(_config: Config, _emitter: Emitter, _store: Store, _llm: Llm, registry: Built) -> Self {
        Self { registry: registry.expect("builds") }
    }
}

/// A tool with every outcome that the interface knows.
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

/// What nobody but the operator may read.
const SECRET: &str = "db.internal.example";

/// What is stated, as a tool of our adapter's trait: each method has the signature that ours has.
struct Ours<T>(T);

#[async_trait]
impl<T: stated::Tool> Tool for Ours<T> {
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

/// A tool of our adapter's trait, as what is stated; the policy is the stated default.
struct Stated<T>(T);

#[async_trait]
impl<T: Tool> stated::Tool for Stated<T> {
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

/// Set in the process that the lines run in.
const MARK: &str = "PORTCULLIS_TEST_ALONE";

const OPERATORS_POLICY: &str =
    "[tools.my_custom_tool]\nenabled = true\n[tools.get_current_time]\nenabled = true\n";

#[tokio::test]
async fn the_lines_build_registries_that_run_under_the_operators_policy() {
    if std::env::var_os(MARK).is_some() {
        return run_the_lines().await;
    }
    if fs::exists("/etc/portcullis/portcullis.toml").unwrap_or(true) {
        assert!(std::env::var_os("CI").is_none(), "this machine has an operator's policy of its own");
        println!("skipped: this machine has an operator's policy, which comes before the test's");
        return;
    }
    let world = World::new().with_policy(OPERATORS_POLICY);
    let config = world.root().join("config/portcullis");
    fs::create_dir_all(&config).expect("a folder");
    fs::copy(world.policy_file(), config.join("portcullis.toml")).expect("copied");

    #[expect(clippy::disallowed_methods, reason = "the test binary itself, for an environment of its own")]
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    let name = "spec_000::the_lines_build_registries_that_run_under_the_operators_policy";
    command.args(["--exact", name, "--nocapture"]).env(MARK, "1");
    command.env("XDG_CONFIG_HOME", world.root().join("config")).env("XDG_STATE_HOME", world.state());
    let output = command.output().expect("starts");
    let text =
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success() && text.contains("1 passed"), "{text}");

    let rows = audit::rows(&audit::log_path(&world.state().join("portcullis/in-process")));
    let rows: Vec<_> = rows.map(|row| row.expect("a readable row")).collect();
    let called: Vec<&str> = rows.iter().filter(|row| row.event == Event::End).map(|row| &*row.tool).collect();
    let custom = "my_custom_tool";
    assert_eq!(called, ["echo", "divide", "get_current_time", custom, custom, custom, "echo"]);
    for row in rows.iter().filter(|row| &*row.tool == custom) {
        assert_eq!(row.confinement, Some(Confinement::Native));
        assert_eq!(row.tier, Some(SafetyTier::SideEffecting), "the interface has no tiers");
    }
}

/// In the process of its own.
async fn run_the_lines() {
    let caller = Caller::new("tester", "run");
    {
        let registry = lines::defaults().expect("builds");
        for name in ["get_current_time", "echo", "add", "subtract", "multiply", "divide"] {
            assert!(registry.get(name).is_some(), "{name}");
        }
        let said = call(&registry, "echo", &json!({"message": "hi"}), &caller).await;
        assert_eq!(ToolExecutionResult::from(said).model_value(), json!({"echoed": "hi", "length": 2}));
        let divided = call(&registry, "divide", &json!({"a": 1, "b": 0}), &caller).await;
        assert_eq!(ToolExecutionResult::from(divided).model_value(), json!({"error": "division by zero"}));
    }
    let registry = lines::custom(Config, Emitter, Store, Llm).registry;
    let told = call(&registry, "get_current_time", &json!({"format": "unix"}), &caller).await;
    assert!(ToolExecutionResult::from(told).model_value()["timestamp"].is_i64());
    for (city, expected) in [
        ("Paris", json!({"city": "Paris", "people": 2_100_000})),
        ("Atlantis", json!({"error": "City not found"})),
        ("Nowhere", json!({"error": "An internal error occurred while executing the tool"})),
    ] {
        let result = call(&registry, "my_custom_tool", &json!({"city": city}), &caller).await;
        assert_eq!(ToolExecutionResult::from(result).model_value(), expected, "{city}");
    }
    let unknown = call(&registry, "echo", &json!({"message": "hi"}), &caller).await;
    let error = unknown.outcome.expect_err("only registered tools run");
    assert_eq!(error.kind(), ToolErrorKind::NotFound);
}

#[tokio::test]
async fn a_tool_goes_there_and_back_through_the_stated_trait() {
    let stage = Stage::with("my_custom_tool", Ours(Stated(MyCustomTool)));
    let tool = stage.registry.get("my_custom_tool").expect("registered");
    assert_eq!(tool.facts().declared_policy, ToolPolicy::Auto, "the stated default");
    let result = stage.call("my_custom_tool", json!({"city": "Paris"})).await;
    let output = result.outcome.expect("a result");
    let expected = json!({"city": "Paris", "people": 2_100_000});
    assert_eq!((output.joined_text(), output.structured), (expected.to_string(), Some(expected)));
}

#[tokio::test]
async fn an_internal_error_is_hidden_from_all_but_the_operators_log() {
    let stage = Stage::with("my_custom_tool", MyCustomTool);
    let mut caller = Caller::new("tester", "run");
    let heard = listening(&mut caller);
    let result = call(&stage.registry, "my_custom_tool", &json!({"city": "Nowhere"}), &caller).await;
    assert_eq!(result.outcome.as_ref().expect_err("internal").kind(), ToolErrorKind::Internal);
    assert!(!result.model_text().contains(SECRET) && !result.details.to_string().contains(SECRET));
    assert!(!heard.lock().expect("not poisoned").join("\n").contains(SECRET));
    let log = fs::read_to_string(audit::log_path(&stage.world.state())).expect("readable");
    assert!(log.contains("\"internal\"") && !log.contains(SECRET), "{log}");
    let shown = ToolExecutionResult::from(result);
    assert!(!shown.model_value().to_string().contains(SECRET));
    let everruns::ToolExecutionResult::InternalError(detail) = shown else { panic!("{shown:?}") };
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
    let stage = Stage::with("careful", boxed);
    let refused = stage.call("careful", json!({})).await;
    assert_eq!(refused.outcome.expect_err("nobody is asked").kind(), ToolErrorKind::Denied);
    let approving = portcullis_tests::approving();
    let done = call(&stage.registry, "careful", &json!({}), &approving).await;
    assert_eq!(ToolExecutionResult::from(done).model_value(), json!("done"));
}
