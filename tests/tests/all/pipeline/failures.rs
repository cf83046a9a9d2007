//! Internal failures: only the operator learns the reason.

use std::{
    future::Future,
    sync::{
        Arc, Mutex,
        mpsc::{Sender, channel},
    },
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis_tools::{
    ToolRegistry, approval::ApprovalPolicy, approval::ApprovalRule, policy::ToolDescriptor,
};
use portcullis_types::{
    FunctionDecl, JsonSchema, SafetyTier, Tool, ToolArgs, ToolContext, ToolError,
    ToolErrorKind::{Denied, Failed, Internal, Timeout},
    ToolOutput,
};
use serde_json::Value;

use super::failing;
use crate::support::{
    Spy, assert_nowhere_below, caller, fixture_enabling, native_registry, raw_call, record_events,
};

const SECRET: &str = "hunter2-of-the-host";

/// Calls a tool that fails internally, and asserts that the secret appears only in the operator's log.
async fn check_hidden_failure(spy: Spy) {
    let fixture = fixture_enabling(&["spy"]);
    let registry = native_registry(&fixture, [spy]);
    let mut caller = caller();
    let events = record_events(&mut caller);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller).await;
    assert_eq!(
        result.model_text(),
        "Tool execution failed: An internal error occurred while executing the tool"
    );
    let error = result.outcome.error().expect("breaks");
    assert_eq!((error.kind(), error.code(), error.hint()), (Internal, "internal", None));
    assert!(!result.details.to_string().contains(SECRET));
    let events = events.lock().expect("not poisoned").clone();
    assert!(events.iter().all(|event| !event.contains(SECRET)), "{events:?}");
    assert_eq!(events.last().map(String::as_str), Some("finished internal"));
    assert_eq!(fixture.rows().len(), 1);
    // Later calls are not affected.
    registry
        .execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller)
        .await
        .into_result()
        .expect("runs");
    drop(registry);
    assert_nowhere_below(fixture.root(), SECRET);
}

#[tokio::test]
async fn a_panic_is_an_internal_error_without_its_text() {
    check_hidden_failure(Spy::new("spy", |_, _| async { panic!("{SECRET}") })).await;
    // A panic in the tool's function itself, before it returns a future, has the same outcome.
    check_hidden_failure(Spy::new("spy", |_, _| -> std::future::Ready<Result<ToolOutput, ToolError>> {
        panic!("{SECRET}")
    }))
    .await;
}

#[tokio::test]
async fn an_internal_error_keeps_its_text_for_the_operator() {
    check_hidden_failure(failing("spy", ToolError::internal(SECRET))).await;
    check_hidden_failure(failing("spy", std::io::Error::other(SECRET).into())).await;
    // The operator's log has the secret, with tool and call.
    let log = Log::default();
    let writer = log.clone();
    let subscriber = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone()).finish();
    let _here = tracing::subscriber::set_default(subscriber);
    let fixture = fixture_enabling(&["spy"]);
    let registry = native_registry(&fixture, [failing("spy", ToolError::internal(SECRET))]);
    let mut call = raw_call("spy", "{}");
    call.id = "call_of_the_log".to_owned();
    registry.execute_with_policy(call, &caller()).await.into_result().expect_err("fails");
    let log_text =
        String::from_utf8(log.0.lock().expect("not poisoned").clone()).expect("the output is UTF-8");
    let line = log_text.lines().find(|line| line.contains(SECRET)).unwrap_or_else(|| panic!("{log_text}"));
    assert!(line.contains("tool=spy") && line.contains("call_id=call_of_the_log"), "{line}");
}

/// A log in memory.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl std::io::Write for Log {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().expect("not poisoned").extend_from_slice(bytes);
        Ok(bytes.len())
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[tokio::test]
async fn a_tools_failure_message_reaches_the_model_verbatim() {
    let fixture = fixture_enabling(&["spy"]);
    let error = ToolError::failed("City not found").with_operator_detail(SECRET);
    let registry = native_registry(&fixture, [failing("spy", error)]);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
    assert_eq!(result.model_text(), "Tool execution failed: City not found");
    assert_eq!(result.into_result().expect_err("fails").kind(), Failed);
    drop(registry);
    assert_nowhere_below(fixture.root(), SECRET);
}

/// A tool whose `call` panics before it returns a future.
struct AbruptlyPanickingTool;

#[async_trait]
impl Tool for AbruptlyPanickingTool {
    fn schema(&self) -> FunctionDecl {
        let parameters = JsonSchema::empty_object();
        FunctionDecl { name: "abrupt".to_owned(), description: None, parameters }
    }
    async fn execute(&self, _args: &str) -> Result<String, ToolError> {
        Ok(String::new())
    }
    fn timeout(&self) -> Duration {
        Duration::from_secs(30)
    }
    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }
    fn call<'a, 'b, 'c, 'r>(
        &'a self,
        _ctx: &'b ToolContext,
        _args: &'c ToolArgs,
    ) -> std::pin::Pin<Box<dyn Future<Output = Result<ToolOutput, ToolError>> + Send + 'r>>
    where
        'a: 'r,
        'b: 'r,
        'c: 'r,
        Self: 'r,
    {
        panic!("{SECRET}")
    }
}

#[tokio::test]
async fn a_tool_that_panics_before_it_is_polled_is_contained_too() {
    let fixture = fixture_enabling(&["abrupt"]);
    let policy = portcullis_tools::PolicyFiles::find(&fixture.envelope()).expect("files");
    let policy = policy.load(portcullis_types::SandboxTier::Process).expect("a policy");
    let registry = ToolRegistry::builder()
        .policy(policy)
        .state(fixture.state())
        .tool(AbruptlyPanickingTool)
        .build()
        .expect("builds");
    let result = registry.execute_with_policy(raw_call("abrupt", "{}"), &caller()).await;
    let error = result.into_result().expect_err("panics");
    assert_eq!(error.kind(), Internal);
    assert!(!error.to_string().contains(SECRET));
    assert_eq!(fixture.rows().len(), 1);
}

/// A caller's approval policy that panics.
struct PanickingPolicy;

impl ApprovalPolicy for PanickingPolicy {
    fn decide(&self, _tool: &ToolDescriptor, _arguments: &Value) -> ApprovalRule {
        panic!("{SECRET}")
    }
}

#[tokio::test]
async fn a_callers_policy_that_panics_means_no() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::repeating("spy");
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let mut caller = caller();
    caller.approval_policy = Some(Arc::new(PanickingPolicy));
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller).await;
    let error = result.into_result().expect_err("means no");
    assert_eq!(error.kind(), Denied, "{error}");
    assert!(!error.to_string().contains(SECRET));
    assert_eq!(calls.load(std::sync::atomic::Ordering::SeqCst), 0);
    assert_eq!(fixture.rows().len(), 1);
}

/// Creates a tool that blocks its thread until the returned sender is dropped.
fn blocking_spy() -> (Spy, Sender<()>) {
    let (release, blocked) = channel::<()>();
    let blocked = Arc::new(Mutex::new(blocked));
    let spy = Spy::new("spy", move |_, _| {
        let blocked = Arc::clone(&blocked);
        async move {
            let _ = blocked.lock().expect("not poisoned").recv();
            Ok(ToolOutput::text("too late"))
        }
    });
    (spy.timeout(Duration::from_millis(50)), release)
}

async fn a_blocked_thread_does_not_hold_up_its_call() {
    let fixture = fixture_enabling(&["spy"]);
    let (spy, release) = blocking_spy();
    let registry = native_registry(&fixture, [spy]);
    let started = Instant::now();
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
    // The thread stays blocked until the release below, so any bounded time shows that the call does not wait for the
    // thread.
    assert!(started.elapsed() < Duration::from_secs(20), "{:?}", started.elapsed());
    let error = result.into_result().expect_err("overdue");
    assert_eq!((error.kind(), error.code()), (Timeout, "timeout"));
    assert_eq!(error.to_string(), "the tool did not finish within 50ms");
    // Other calls run while the thread is blocked.
    registry
        .execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller())
        .await
        .into_result()
        .expect("runs");
    drop(release);
    assert_eq!(fixture.rows().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tool_that_blocks_its_thread_times_out_on_time() {
    a_blocked_thread_does_not_hold_up_its_call().await;
}

#[tokio::test]
async fn a_blocking_tool_times_out_on_time_on_a_single_thread_too() {
    a_blocked_thread_does_not_hold_up_its_call().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_block_for_good_take_no_slots_from_others() {
    let fixture = fixture_enabling(&["spy"]);
    let (spy, release) = blocking_spy();
    let registry = Arc::new(native_registry(&fixture, [spy]));
    // Make twice as many calls as there are slots.
    let blocked = (0..20).map(|_| {
        let registry = Arc::clone(&registry);
        async move { registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await.into_result() }
    });
    for outcome in futures_util::future::join_all(blocked).await {
        assert_eq!(outcome.expect_err("overdue").kind(), Timeout);
    }
    registry
        .execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller())
        .await
        .into_result()
        .expect("runs");
    drop(release);
}
