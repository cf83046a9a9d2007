//! The timeout of a call, which the tool, the policy, or the caller's turn sets.

use std::{
    sync::{Arc, atomic::Ordering},
    time::{Duration, Instant},
};

use portcullis_testing::Fixture;
use portcullis_types::{SafetyTier, ToolErrorKind::Timeout};
use tokio::sync::Notify;

use crate::support::{
    Spy, caller, caller_asking, enabling_entry, fixture_enabling, native_registry, raw_call,
};

/// Far longer than any test takes.
const LONG: Duration = Duration::from_secs(500);

const SHORT: Duration = Duration::from_millis(30);

/// Makes a call of a tool that never ends, and returns the message of its timeout.
async fn timeout_message(policy: &str, tool_timeout: Duration, turn_time: Option<Duration>) -> String {
    let fixture = Fixture::new().with_policy(policy);
    let spy = Spy::new("spy", |_, _| std::future::pending()).timeout(tool_timeout);
    let registry = native_registry(&fixture, [spy]);
    let mut caller = caller();
    caller.turn_deadline = turn_time.map(|remaining| Instant::now() + remaining);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller).await;
    let error = result.into_result().expect_err("never ends");
    assert_eq!((error.kind(), error.code()), (Timeout, "timeout"));
    assert_eq!(fixture.rows().len(), 1);
    error.to_string()
}

#[tokio::test]
async fn the_shortest_of_tool_policy_and_turn_holds() {
    let enabled_entry = enabling_entry("spy");
    let in_30_ms = "the tool did not finish within 30ms";
    assert_eq!(timeout_message(&enabled_entry, SHORT, None).await, in_30_ms);
    assert_eq!(timeout_message(&enabled_entry, SHORT, Some(LONG)).await, in_30_ms);
    assert_eq!(timeout_message(&format!("{enabled_entry}timeout = \"30ms\""), LONG, None).await, in_30_ms);
    assert_eq!(
        timeout_message(&format!("{enabled_entry}timeout = \"30ms\""), LONG, Some(LONG)).await,
        in_30_ms
    );
    // The turn's time has begun before the call, so the tool gets slightly less than all of it.
    timeout_message(&enabled_entry, LONG, Some(SHORT)).await;
    timeout_message(&format!("{enabled_entry}timeout = \"500s\""), LONG, Some(SHORT)).await;
}

#[tokio::test]
async fn no_call_outlasts_the_longest_time_of_the_policy() {
    let fixture =
        fixture_enabling(&["spy"]).with_policy_edit("max_timeout = \"10m\"", "max_timeout = \"30ms\"");
    let registry = native_registry(&fixture, [Spy::new("spy", |_, _| std::future::pending()).timeout(LONG)]);
    let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await;
    assert_eq!(result.model_text(), "Tool execution failed: the tool did not finish within 30ms");
}

#[tokio::test]
async fn a_tool_learns_its_deadline() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::new("spy", |ctx, _| async move {
        let remaining = ctx.remaining().expect("a deadline");
        assert!(remaining <= LONG && remaining > LONG / 2, "{remaining:?}");
        Ok(Default::default())
    });
    let registry = native_registry(&fixture, [spy.timeout(LONG)]);
    registry.execute_with_policy(raw_call("spy", "{}"), &caller()).await.into_result().expect("in time");
}

#[tokio::test]
async fn expired_turn_starts_no_call() {
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::repeating("spy").tier(SafetyTier::SideEffecting);
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let mut caller = caller();
    caller.turn_deadline = Some(Instant::now());
    // Repeated, because a race is lost only sometimes.
    for _ in 0..50 {
        let result = registry.execute_with_policy(raw_call("spy", "{}"), &caller).await;
        assert_eq!(result.into_result().expect_err("over").kind(), Timeout);
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0, "the turn was over before");
}

#[tokio::test]
async fn a_call_does_not_wait_for_a_slot_beyond_its_turn() {
    let fixture = fixture_enabling(&["holder"]).with_policy_edit("concurrency = 10", "concurrency = 1");
    let (entered, release) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (enters, waits) = (Arc::clone(&entered), Arc::clone(&release));
    let holder = Spy::new("holder", move |_, _| {
        let (entered, release) = (Arc::clone(&enters), Arc::clone(&waits));
        async move {
            entered.notify_one();
            release.notified().await;
            Ok(Default::default())
        }
    });
    let registry = native_registry(&fixture, [holder.timeout(LONG)]);
    let holding_caller = caller();
    let holding = registry.execute_with_policy(raw_call("holder", "{}"), &holding_caller);
    let waiting = async {
        entered.notified().await;
        let mut waiting_caller = caller();
        waiting_caller.turn_deadline = Some(Instant::now() + SHORT);
        let call = registry.execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &waiting_caller);
        let result = tokio::time::timeout(Duration::from_secs(20), call).await;
        release.notify_one();
        result.expect("the turn ends the wait").into_result().expect_err("over")
    };
    let (held, error) = tokio::join!(holding, waiting);
    held.into_result().expect("had its place");
    assert_eq!(error.kind(), Timeout, "{error}");
    assert_eq!(fixture.rows().len(), 2);
}

#[tokio::test]
async fn a_question_does_not_wait_beyond_the_turn() {
    struct NeverAnswering;
    #[async_trait::async_trait]
    impl portcullis_tools::approval::Approver for NeverAnswering {
        async fn decide(
            &self,
            _request: &portcullis_tools::approval::ApprovalRequest,
        ) -> portcullis_tools::approval::AttributedAnswer {
            std::future::pending().await
        }
    }
    let fixture = fixture_enabling(&["spy"]);
    let spy = Spy::repeating("spy").requiring_approval();
    let calls = spy.calls();
    let registry = native_registry(&fixture, [spy]);
    let mut caller = caller_asking(NeverAnswering);
    caller.turn_deadline = Some(Instant::now() + SHORT);
    let call = registry.execute_with_policy(raw_call("spy", "{}"), &caller);
    let result = tokio::time::timeout(Duration::from_secs(20), call).await.expect("the turn ends the wait");
    assert_eq!(result.into_result().expect_err("over").kind(), Timeout);
    assert_eq!(calls.load(Ordering::SeqCst), 0);
}
