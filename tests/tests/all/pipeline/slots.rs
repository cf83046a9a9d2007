//! Limits on running and waiting calls, and calls that a tool makes itself.

use std::{
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::join_all};
use portcullis_agent::{
    AgentConfig, AgentLoop, Delta, ExecutionStrategy, InMemoryMessageStore, ScriptedProvider, StopReason,
    ToolCallDelta,
};
use portcullis_testing::Fixture;
use portcullis_tools::{
    Caller, RegistryExecutor, ToolRegistry,
    approval::{ApprovalPolicy, ApprovalRule},
    new_call,
    policy::ToolDescriptor,
};
use portcullis_types::{
    CancellationToken, ToolError,
    ToolErrorKind::{Cancelled, ResourceLimit, Unavailable},
    ToolOutput,
};
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::support::{Spy, caller, enabling_entry, fixture_enabling, native_registry, raw_call};

/// Creates a tool that returns after `count` calls of it have run concurrently. Also returns the peak of its
/// concurrent calls.
fn meeting_spy(count: usize) -> (Spy, Arc<AtomicUsize>) {
    let (active_calls, peak_calls) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (barrier, peak) = (Arc::new(Barrier::new(count)), Arc::clone(&peak_calls));
    let spy = Spy::new("meeting", move |_, _| {
        let (active_calls, peak, barrier) =
            (Arc::clone(&active_calls), Arc::clone(&peak), Arc::clone(&barrier));
        async move {
            peak.fetch_max(active_calls.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            barrier.wait().await;
            active_calls.fetch_sub(1, Ordering::SeqCst);
            Ok(ToolOutput::text("met"))
        }
    });
    (spy.timeout(Duration::from_secs(60)), peak_calls)
}

async fn check_cap(fixture: Fixture, cap: usize) {
    let (spy, peak_calls) = meeting_spy(cap);
    let fixture = fixture.with_policy(&enabling_entry("meeting"));
    let registry = native_registry(&fixture, [spy]);
    let caller = caller();
    let calls = (0..100).map(|_| registry.execute_with_policy(raw_call("meeting", "{}"), &caller));
    for result in join_all(calls).await {
        result.into_result().expect("all get their turn");
    }
    assert_eq!(peak_calls.load(Ordering::SeqCst), cap, "as many as may, and never more");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hundred_parallel_calls_run_ten_at_a_time() {
    check_cap(Fixture::new(), 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_policy_sets_how_many_run_at_a_time() {
    check_cap(Fixture::new().with_policy_edit("concurrency = 10", "concurrency = 4"), 4).await;
}

#[tokio::test]
async fn the_1_025th_waiting_call_is_refused_and_no_other_is_lost() {
    let fixture = fixture_enabling(&["endless"])
        .with_policy_edit("concurrency = 10", "concurrency = 1")
        .with_policy_edit("calls_per_minute = 600", "calls_per_minute = 100000");
    let spy = Spy::new("endless", |_, _| std::future::pending());
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy.timeout(Duration::from_secs(500))]);
    let mut caller = caller();
    caller.cancel = CancellationToken::new();
    let mut pending: Vec<_> = (0..1 + 1024)
        .map(|_| Box::pin(registry.execute_with_policy(raw_call("endless", "{}"), &caller)))
        .collect();
    for call in &mut pending {
        assert!(call.now_or_never().is_none(), "none of them ends by itself");
    }
    let refused = registry.execute_with_policy(raw_call("endless", "{}"), &caller).await;
    let error = refused.into_result().expect_err("full");
    assert_eq!((error.kind(), error.code()), (ResourceLimit, "queue_full"));
    caller.cancel.cancel();
    for result in join_all(pending).await {
        assert_eq!(result.into_result().expect_err("cancelled").kind(), Cancelled);
    }
    assert!(calls.load(Ordering::SeqCst) <= 1);
    assert_eq!(fixture.rows().len(), 1026);
}

/// Creates a tool that makes `times` concurrent calls through the registry and joins their texts.
fn nesting_spy(registry: &Arc<OnceLock<Arc<ToolRegistry>>>) -> Spy {
    let registry = Arc::clone(registry);
    let parameters = json!({
        "type": "object",
        "properties": {"tool": {"type": "string"}, "arguments": {"type": "string"}, "times": {"type": "integer"}},
        "required": ["tool", "arguments", "times"],
    });
    let spy = Spy::new("nesting", move |ctx, args| {
        let registry = Arc::clone(registry.get().expect("set"));
        async move {
            let text = |name: &str| args.value()[name].as_str().unwrap_or_default().to_owned();
            let caller = Caller::nested(&ctx);
            let calls = (0..args.value()["times"].as_u64().unwrap_or_default())
                .map(|_| registry.execute_with_policy(new_call(text("tool"), text("arguments")), &caller));
            let results = join_all(calls).await;
            let texts: Result<Vec<String>, ToolError> =
                results.into_iter().map(|result| Ok(result.into_result()?.joined_text())).collect();
            Ok(ToolOutput::text(texts?.join(" ")))
        }
    });
    spy.parameters(parameters).timeout(Duration::from_secs(60))
}

fn nested_arguments(tool: &str, arguments: &Value, times: usize) -> String {
    json!({"tool": tool, "arguments": arguments.to_string(), "times": times}).to_string()
}

#[tokio::test]
async fn a_tool_that_calls_tools_cannot_wait_for_itself() {
    let fixture = fixture_enabling(&["nesting"]).with_policy_edit("concurrency = 10", "concurrency = 1");
    fixture.put("a.txt", "a");
    let cell = Arc::new(OnceLock::new());
    let builder = fixture.builder().await.expect("bootstraps").tool(nesting_spy(&cell));
    let registry = Arc::new(builder.build().expect("builds"));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let read = nested_arguments("file_read", &json!({"path": "a.txt"}), 1);
    for (arguments, expected) in [
        (nested_arguments("echo", &json!({"message": "m"}), 1), "{\"echoed\":\"m\",\"length\":1}".to_owned()),
        (read.clone(), "a".to_owned()),
        (nested_arguments("file_read", &json!({"path": "a.txt"}), 3), "a a a".to_owned()),
        (nested_arguments("nesting", &serde_json::from_str(&read).expect("JSON"), 2), "a a".to_owned()),
    ] {
        let caller = caller();
        let call = registry.execute_with_policy(raw_call("nesting", &arguments), &caller);
        let result = tokio::time::timeout(Duration::from_secs(50), call).await.expect("no deadlock");
        assert_eq!(result.into_result().expect("runs").joined_text(), expected, "{arguments}");
    }
    // Each nested call passes all steps: it is checked, refused, and recorded under the same agent and run.
    let caller = caller();
    let escape = nested_arguments("file_read", &json!({"path": "/etc/passwd"}), 1);
    let result = registry.execute_with_policy(raw_call("nesting", &escape), &caller).await;
    assert_eq!(result.into_result().expect_err("refused").code(), "unknown_mount");
    let rows = fixture.rows();
    assert_eq!(rows.len(), 2 + 2 + 4 + 5 + 2);
    assert!(
        rows.iter().all(|row| row.agent.as_deref() == Some("tester") && row.run_id.as_deref() == Some("run"))
    );
    // The cell and the registry keep each other alive until the test process ends.
    drop(cell);
}

#[tokio::test]
async fn too_many_guests_within_one_call_are_refused_immediately() {
    let fixture = fixture_enabling(&["nesting"]).with_policy_edit("concurrency = 10", "concurrency = 1");
    fixture.put("a.txt", "a");
    let cell = Arc::new(OnceLock::new());
    let builder = fixture.builder().await.expect("bootstraps").tool(nesting_spy(&cell));
    let registry = Arc::new(builder.build().expect("builds"));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let arguments = nested_arguments("file_read", &json!({"path": "a.txt"}), 30);
    let result = registry.execute_with_policy(raw_call("nesting", &arguments), &caller()).await;
    match result.into_result() {
        Ok(output) => assert_eq!(output.joined_text(), vec!["a"; 30].join(" ")),
        Err(error) => assert_eq!((error.kind(), error.code()), (Unavailable, "workers_exhausted")),
    }
    // Each nested call has its row, and the runner still works.
    assert_eq!(fixture.rows().len(), 31);
    let arguments = nested_arguments("file_read", &json!({"path": "a.txt"}), 2);
    let result = registry.execute_with_policy(raw_call("nesting", &arguments), &caller()).await;
    assert_eq!(result.into_result().expect("runs").joined_text(), "a a");
}

#[tokio::test]
async fn cancelling_a_call_cancels_what_its_tool_called() {
    let fixture =
        Fixture::new().with_policy(&enabling_entry("nesting")).with_policy(&enabling_entry("endless"));
    let cell = Arc::new(OnceLock::new());
    let started = Arc::new(tokio::sync::Notify::new());
    let starts = Arc::clone(&started);
    let endless = Spy::new("endless", move |_, _| {
        starts.notify_one();
        std::future::pending()
    });
    let registry =
        Arc::new(native_registry(&fixture, [nesting_spy(&cell), endless.timeout(Duration::from_secs(500))]));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let caller = caller();
    let arguments = nested_arguments("endless", &json!({}), 1);
    let call = registry.execute_with_policy(raw_call("nesting", &arguments), &caller);
    let cancelling = async {
        started.notified().await;
        caller.cancel.cancel();
    };
    let (result, ()) = tokio::join!(call, cancelling);
    assert_eq!(result.into_result().expect_err("cancelled").kind(), Cancelled);
}

#[tokio::test]
async fn nested_calls_obey_the_callers_approval_policy() {
    let fixture = fixture_enabling(&["nesting"]);
    let cell = Arc::new(OnceLock::new());
    let builder = fixture.builder().await.expect("bootstraps").tool(nesting_spy(&cell));
    let registry = Arc::new(builder.build().expect("builds"));
    assert!(cell.set(Arc::clone(&registry)).is_ok());
    let mut caller = caller();
    caller.approval_policy = Some(Arc::new(NoEcho));
    let echo = nested_arguments("echo", &json!({"message": "m"}), 1);
    let result = registry.execute_with_policy(raw_call("nesting", &echo), &caller).await;
    assert_eq!(result.into_result().expect_err("denied").code(), "approval_denied");
    drop(cell);
}

/// Denies only `echo`.
struct NoEcho;

impl ApprovalPolicy for NoEcho {
    fn decide(&self, tool: &ToolDescriptor, _arguments: &Value) -> ApprovalRule {
        if tool.name.as_str() == "echo" {
            return ApprovalRule::Deny { reason: "no echo here".to_owned() };
        }
        ApprovalRule::Allow
    }
}

/// The calls of one turn reach the registry concurrently if their tool only reads.
#[tokio::test(flavor = "multi_thread")]
async fn calls_of_one_turn_that_only_read_run_concurrently() {
    let (spy, peak_calls) = meeting_spy(2);
    let registry = native_registry(&fixture_enabling(&["meeting"]), [spy]);
    let meet = |index: u64| {
        let id = Some(format!("call-{index}"));
        let (name, arguments) = (Some("meeting".to_owned()), Some("{}".to_owned()));
        Delta::ToolCall(ToolCallDelta { index, id, name, arguments })
    };
    let script = ScriptedProvider::new()
        .then([meet(0), meet(1), Delta::End(StopReason::ToolCalls)])
        .then([Delta::Text("done".to_owned()), Delta::End(StopReason::Stop)]);
    let executor = RegistryExecutor::new(Arc::new(registry), caller());
    let mut config = AgentConfig::new("agent");
    config.strategy = ExecutionStrategy::Parallel;
    let mut agent = AgentLoop::new(config, (), InMemoryMessageStore::new(), script, executor);
    assert_eq!(agent.run("go").await.answer(), Some("done"));
    assert_eq!(peak_calls.load(Ordering::SeqCst), 2);
}
