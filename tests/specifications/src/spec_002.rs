//! Specification 002: its vocabulary, and its three tools, each in a module in which `yoagent` is our
//! adapter.

use std::sync::{
    atomic::{AtomicUsize, Ordering},
    Arc, Mutex,
};

use portcullis_adapters::yoagent::types::{self as ours, async_trait, AgentTool, Content, ToolResultMessage};
use portcullis_testing::Fixture;
use portcullis_tools::{
    audit::{Decision, Outcome, RowEvent},
    Caller,
};
use portcullis_types::{SafetyTier, ToolErrorKind, ToolOutput};
use serde_json::{json, Value};

use crate::support::{call, record_events, Stage};

/// The shapes as the specification states them.
#[expect(unreachable_pub, reason = "the specification's own word")]
mod stated {
    use std::sync::Arc;

    use portcullis_adapters::yoagent::types::{async_trait, CancellationToken, Content, ProgressFn};

    example!("002_trait.rs");
    example!("002_context.rs");
    example!("002_result.rs");
    example!("002_error.rs");
    example!("002_update.rs");
}

mod weather {
    use portcullis_adapters::yoagent;

    #[expect(unreachable_pub, clippy::uninlined_format_args, reason = "the example is as it is")]
    mod example {
        use super::yoagent;

        example!("002_weather.rs");
    }

    pub(super) use example::WeatherTool;
}

#[expect(clippy::uninlined_format_args, reason = "the example is as it is")]
pub(crate) mod data_processor {
    use portcullis_adapters::yoagent;

    example!("002_data_processor.rs");

    /// The methods that the example omits from its `impl`.
    macro_rules! supplied_methods {
        () => {
            fn name(&self) -> &str {
                "process"
            }
            fn label(&self) -> &str {
                "Process"
            }
            fn description(&self) -> &str {
                "Processes rows."
            }
            fn parameters_schema(&self) -> serde_json::Value {
                serde_json::json!({
                    "type": "object",
                    "properties": {"rows": {"type": "integer"}},
                    "required": ["rows"],
                })
            }
        };
    }
    use supplied_methods;

    fn fetch_rows(params: &serde_json::Value) -> Result<Vec<super::Row>, ToolError> {
        let rows = params["rows"].as_u64().ok_or(ToolError::InvalidArgs("missing 'rows'".into()))?;
        (0..rows).map(|_| Ok(super::Row)).collect()
    }

    fn process_row(_row: &super::Row) {
        super::PROCESSED.fetch_add(1, super::Ordering::SeqCst);
    }

    pub(crate) fn tool() -> impl AgentTool {
        DataProcessorTool
    }
}

struct Row;

/// The number of processed rows, in the one test of a process that processes rows.
pub(crate) static PROCESSED: AtomicUsize = AtomicUsize::new(0);

#[expect(clippy::uninlined_format_args, reason = "the example is as it is")]
mod deploy {
    /// Names that the example's program imports and its tool does not use.
    mod yoagent {
        pub(super) use portcullis_adapters::yoagent::types;

        pub(super) mod agent {
            pub(in super::super) struct Agent;
        }
        pub(super) mod provider {
            pub(in super::super) struct AnthropicProvider;
        }
    }

    /// A `sleep` that ends immediately.
    mod tokio {
        pub(super) mod time {
            pub(in super::super) async fn sleep(duration: std::time::Duration) {
                assert_eq!(duration.as_secs(), 2);
                tokio::task::yield_now().await;
            }
            use ::tokio;
        }
    }

    example!("002_deploy.rs");

    const _: (Agent, AnthropicProvider) = (Agent, AnthropicProvider);

    pub(super) fn tool() -> impl AgentTool {
        DeployTool
    }
}

/// Adapts a tool of the stated trait to our adapter's trait: every type has the same shape.
struct AsOurs<T>(T);

#[async_trait]
impl<T: stated::AgentTool> AgentTool for AsOurs<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn label(&self) -> &str {
        self.0.label()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn parameters_schema(&self) -> Value {
        self.0.parameters_schema()
    }
    async fn execute(
        &self,
        params: Value,
        ctx: ours::ToolContext,
    ) -> Result<ours::ToolResult, ours::ToolError> {
        let ours::ToolContext { tool_call_id, tool_name, cancel, on_update, on_progress } = ctx;
        let on_update = on_update.map(|listener| -> stated::ToolUpdateFn {
            Arc::new(move |stated::ToolResult { content, details }| {
                listener(ours::ToolResult { content, details });
            })
        });
        let ctx = stated::ToolContext { tool_call_id, tool_name, cancel, on_update, on_progress };
        match self.0.execute(params, ctx).await {
            Ok(stated::ToolResult { content, details }) => Ok(ours::ToolResult { content, details }),
            Err(stated::ToolError::Failed(text)) => Err(ours::ToolError::Failed(text)),
            Err(stated::ToolError::NotFound(text)) => Err(ours::ToolError::NotFound(text)),
            Err(stated::ToolError::InvalidArgs(text)) => Err(ours::ToolError::InvalidArgs(text)),
            Err(stated::ToolError::Cancelled) => Err(ours::ToolError::Cancelled),
        }
    }
}

/// Adapts a tool of our adapter's trait to the stated trait.
struct AsStated<T>(T);

#[async_trait]
impl<T: AgentTool> stated::AgentTool for AsStated<T> {
    fn name(&self) -> &str {
        self.0.name()
    }
    fn label(&self) -> &str {
        self.0.label()
    }
    fn description(&self) -> &str {
        self.0.description()
    }
    fn parameters_schema(&self) -> Value {
        self.0.parameters_schema()
    }
    async fn execute(
        &self,
        params: Value,
        ctx: stated::ToolContext,
    ) -> Result<stated::ToolResult, stated::ToolError> {
        let stated::ToolContext { tool_call_id, tool_name, cancel, on_update, on_progress } = ctx;
        let on_update = on_update.map(|listener| -> ours::ToolUpdateFn {
            Arc::new(move |ours::ToolResult { content, details }| {
                listener(stated::ToolResult { content, details });
            })
        });
        let ctx = ours::ToolContext { tool_call_id, tool_name, cancel, on_update, on_progress };
        match self.0.execute(params, ctx).await {
            Ok(ours::ToolResult { content, details }) => Ok(stated::ToolResult { content, details }),
            Err(ours::ToolError::Failed(text)) => Err(stated::ToolError::Failed(text)),
            Err(ours::ToolError::NotFound(text)) => Err(stated::ToolError::NotFound(text)),
            Err(ours::ToolError::InvalidArgs(text)) => Err(stated::ToolError::InvalidArgs(text)),
            Err(ours::ToolError::Cancelled) => Err(stated::ToolError::Cancelled),
        }
    }
}

#[tokio::test]
async fn the_weather_tool_runs_and_its_errors_are_messages() {
    let stage = Stage::enabling("get_weather", weather::WeatherTool);
    let tool = stage.registry.get("get_weather").expect("registered");
    assert_eq!(tool.label(), Some("Weather"));
    assert_eq!(tool.descriptor().declared_tier, None, "the interface has no tiers");

    let result = stage.call("get_weather", json!({"city": "Paris"})).await;
    assert_eq!(result.details, json!({}));
    let message = ToolResultMessage::from(result);
    assert_eq!(message.content, [Content::text("Weather in Paris: 72°F, sunny")], "decoded, not mojibake");
    assert_eq!((message.tool_name.as_str(), message.is_error), ("get_weather", false));

    let message = ToolResultMessage::from(stage.call("get_weather", json!({})).await);
    assert_eq!(message.content, [Content::text("missing required field 'city' in arguments")]);
    assert!(message.is_error);

    let rows = stage.fixture.rows();
    let events: Vec<_> = rows.iter().map(|row| (row.event, row.outcome, row.tier)).collect();
    let effects = Some(SafetyTier::SideEffecting);
    let invalid = Some(Outcome::Error(ToolErrorKind::InvalidArguments));
    assert_eq!(events[..2], [(RowEvent::Begin, None, effects), (RowEvent::End, Some(Outcome::Ok), effects)]);
    assert_eq!((events[2].0, events[2].1, events.len()), (RowEvent::End, invalid, 3));
}

#[tokio::test]
async fn a_tool_that_the_policy_does_not_enable_never_runs() {
    let stage = Stage::with_fixture(Fixture::new(), weather::WeatherTool);
    let result = stage.call("get_weather", json!({"city": "Paris"})).await;
    let error = result.outcome.error().expect("denied");
    assert_eq!((error.kind(), error.code()), (ToolErrorKind::Denied, "native_not_enabled"));
    let message = ToolResultMessage::from(result);
    assert!(message.is_error);
    let rows = stage.fixture.rows();
    assert_eq!(rows.len(), 1);
    assert_eq!((rows[0].event, rows[0].decision), (RowEvent::End, Some(Decision::Deny)));
}

#[tokio::test]
async fn the_data_processor_streams_progress_and_stops_when_cancelled() {
    let stage = Stage::enabling("process", data_processor::tool());
    let mut caller = Caller::new("tester", "run");
    let events = record_events(&mut caller);
    let result = call(&stage.registry, "process", &json!({"rows": 250}), &caller).await;
    assert_eq!(result.model_text(), "Processed all 250 rows", "updates never reach the model");
    assert_eq!(PROCESSED.swap(0, Ordering::SeqCst), 250);
    assert_eq!(
        *events.lock().expect("not poisoned"),
        [
            "requested process",
            "started process",
            r#"update Processed 0/250 rows {"progress":0.0}"#,
            r#"update Processed 100/250 rows {"progress":0.4}"#,
            r#"update Processed 200/250 rows {"progress":0.8}"#,
            "finished process false",
        ]
    );

    // Without a listener the result is the same.
    let result = stage.call("process", json!({"rows": 3})).await;
    assert_eq!(result.model_text(), "Processed all 3 rows");
    assert_eq!(PROCESSED.swap(0, Ordering::SeqCst), 3);

    let mut caller = Caller::new("tester", "run");
    let (cancel, updates) = (caller.cancel.clone(), AtomicUsize::new(0));
    caller.on_update = Some(Arc::new(move |_| {
        if updates.fetch_add(1, Ordering::SeqCst) == 1 {
            cancel.cancel();
        }
    }));
    let result = call(&stage.registry, "process", &json!({"rows": 250}), &caller).await;
    assert_eq!(result.outcome.error().expect("cancelled").kind(), ToolErrorKind::Cancelled);
    assert!(ToolResultMessage::from(result).is_error);
    assert_eq!(PROCESSED.load(Ordering::SeqCst), 101, "it looks before each row");
}

#[tokio::test]
async fn the_deploy_tool_shows_people_its_steps_and_the_model_its_end() {
    // Check the tool directly, and converted to the stated interface and back.
    check_deployment(Stage::enabling("deploy", deploy::tool())).await;
    check_deployment(Stage::enabling("deploy", AsOurs(AsStated(deploy::tool())))).await;
}

async fn check_deployment(stage: Stage) {
    let mut caller = Caller::new("tester", "run");
    let events = record_events(&mut caller);
    let details: Arc<Mutex<Vec<ToolOutput>>> = Arc::default();
    let sink = Arc::clone(&details);
    caller.on_update = Some(Arc::new(move |partial| sink.lock().expect("not poisoned").push(partial)));
    let result = call(&stage.registry, "deploy", &json!({"env": "production"}), &caller).await;
    assert_eq!(result.details, json!({"env": "production", "status": "success"}));
    let message = ToolResultMessage::from(result);
    assert_eq!(message.content, [Content::text("Successfully deployed to production")]);
    assert!(!message.is_error);

    let events = events.lock().expect("not poisoned");
    let event_kinds: Vec<&str> =
        events.iter().map(|line| line.split(" {").next().unwrap_or_default()).collect();
    assert_eq!(
        event_kinds,
        [
            "requested deploy",
            "started deploy",
            "update [1/4] Building image...",
            "update [2/4] Running tests...",
            "update [3/4] Pushing to registry...",
            "update [4/4] Rolling out...",
            "finished deploy false",
        ]
    );
    let details = details.lock().expect("not poisoned");
    assert_eq!(details[3].details, json!({"step": 4, "total": 4, "phase": "Rolling out"}));
}

#[tokio::test]
async fn progress_is_forwarded_and_errors_keep_their_kinds() {
    struct Failing;

    #[async_trait]
    impl AgentTool for Failing {
        fn name(&self) -> &str {
            "fails"
        }
        fn label(&self) -> &str {
            "Fails"
        }
        fn description(&self) -> &str {
            "Fails as it is told."
        }
        fn parameters_schema(&self) -> Value {
            json!({"type": "object", "properties": {"how": {"type": "string"}}, "required": ["how"]})
        }
        async fn execute(
            &self,
            params: Value,
            ctx: ours::ToolContext,
        ) -> Result<ours::ToolResult, ours::ToolError> {
            if let Some(progress) = &ctx.on_progress {
                progress(format!("{} has begun", ctx.tool_name));
            }
            Err(match params["how"].as_str() {
                Some("not found") => ours::ToolError::NotFound("no such file".into()),
                Some("invalid") => ours::ToolError::InvalidArgs("no such way".into()),
                Some("cancelled") => ours::ToolError::Cancelled,
                _ => ours::ToolError::Failed("it broke".into()),
            })
        }
    }

    let boxed: Box<dyn AgentTool> = Box::new(Failing);
    let stage = Stage::enabling("fails", boxed);
    for (how, kind, expected_text) in [
        ("not found", ToolErrorKind::NotFound, "no such file"),
        ("invalid", ToolErrorKind::InvalidArguments, "no such way"),
        ("cancelled", ToolErrorKind::Cancelled, "the call was cancelled"),
        ("at all", ToolErrorKind::Failed, "it broke"),
    ] {
        let mut caller = Caller::new("tester", "run");
        let events = record_events(&mut caller);
        let result = call(&stage.registry, "fails", &json!({"how": how}), &caller).await;
        assert_eq!(result.outcome.error().expect("an error").kind(), kind);
        let message = ToolResultMessage::from(result);
        assert_eq!((message.content, message.is_error), (vec![Content::text(expected_text)], true));
        assert_eq!(events.lock().expect("not poisoned")[2], "progress fails has begun");
    }
}
