//! External tools in the pipeline: slots, labels, refusals, late results.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use portcullis_testing::Fixture;
use portcullis_tools::{
    AddedCall, Caller, ExternalCall, ExternalCallState, ExternalCalls, ExternalTool, LateResult, PolicyFiles,
    ToolRegistry,
    audit::{Outcome, RowEvent},
    hook::{CallHook, HookedCall},
    policy::{FlowLabel, WorkspaceSecurityPolicy},
};
use portcullis_types::{
    FunctionDecl, JsonSchema, SandboxTier, ToolError,
    ToolErrorKind::{Cancelled, Denied, Timeout, Unavailable},
    ToolEvent, ToolOutcome, ToolOutput, async_trait,
};
use serde_json::{Value, json};
use tokio::{sync::Semaphore, task::JoinSet};

use crate::support::{caller, raw_call};

/// Keeps calls in memory. A call gets a result only if `resolved` has it.
#[derive(Default)]
struct Kept {
    calls: Mutex<HashMap<String, ExternalCall>>,
    added: Option<Arc<Semaphore>>,
    resolved: Option<Value>,
    cancelled: Mutex<Vec<String>>,
}

#[async_trait]
impl ExternalCalls for Kept {
    async fn add(&self, call: &ExternalCall) -> Result<AddedCall, ToolError> {
        self.calls.lock().expect("not poisoned").insert(call.id.clone(), call.clone());
        if let Some(added) = &self.added {
            added.add_permits(1);
        }
        let state = if call.waits { ExternalCallState::Waiting } else { ExternalCallState::Pending };
        Ok(AddedCall { state, expires_at: call.expires_at })
    }

    async fn wait(&self, _id: &str) -> Result<ExternalCallState, ToolError> {
        match &self.resolved {
            Some(value) => Ok(ExternalCallState::Resolved(value.clone())),
            None => std::future::pending().await,
        }
    }

    async fn stop_waiting(&self, _id: &str) -> Result<ExternalCallState, ToolError> {
        Ok(ExternalCallState::Pending)
    }

    async fn cancel(&self, id: &str) -> Result<(), ToolError> {
        self.cancelled.lock().expect("not poisoned").push(id.to_owned());
        Ok(())
    }
}

fn tool(name: &str, waits: bool, timeout: Duration) -> ExternalTool {
    let decl = FunctionDecl {
        name: name.to_owned(),
        description: None,
        parameters: JsonSchema::new(json!({"type": "object", "properties": {"a": {"type": "integer"}}})),
    };
    ExternalTool { waits, timeout, ..ExternalTool::new(decl) }
}

fn policy(fixture: &Fixture) -> WorkspaceSecurityPolicy {
    let files = PolicyFiles::find(&fixture.envelope()).expect("policy files");
    files.load(SandboxTier::Process).expect("a policy")
}

fn registry(fixture: &Fixture, tools: impl IntoIterator<Item = ExternalTool>) -> ToolRegistry {
    let builder = ToolRegistry::builder().default_tools().policy(policy(fixture)).state(fixture.state());
    tools.into_iter().fold(builder, |builder, tool| builder.external_tool(tool)).build().expect("builds")
}

fn keeping(kept: &Arc<Kept>) -> Caller {
    let mut caller = caller();
    caller.external_calls = Some(Arc::clone(kept) as Arc<dyn ExternalCalls>);
    caller
}

const LONG: Duration = Duration::from_secs(600);

/// More calls wait than there are slots, and another call still runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_waiting_call_gives_its_slot_back() {
    let fixture = Fixture::new();
    let registry = Arc::new(registry(&fixture, [tool("confirm", true, LONG)]));
    let added = Arc::new(Semaphore::new(0));
    let kept = Arc::new(Kept { added: Some(Arc::clone(&added)), ..Kept::default() });
    let waiting = keeping(&kept);
    let cancel = waiting.cancel.clone();
    let mut calls = JoinSet::new();
    for _ in 0..30 {
        let (registry, waiting) = (Arc::clone(&registry), waiting.clone());
        calls.spawn(async move { registry.execute_with_policy(raw_call("confirm", "{}"), &waiting).await });
    }
    added.acquire_many(30).await.expect("open").forget();
    let echo = registry.execute_with_policy(raw_call("echo", r#"{"message":"m"}"#), &caller()).await;
    assert!(echo.outcome.is_output(), "{echo:?}");
    cancel.cancel();
    for call in calls.join_all().await {
        let error = call.into_result().expect_err("cancelled");
        assert_eq!(error.kind(), Cancelled);
    }
    assert_eq!(kept.cancelled.lock().expect("not poisoned").len(), 30);
}

#[tokio::test]
async fn a_pending_call_has_its_outcome_events_and_row() {
    let fixture = Fixture::new();
    let registry = registry(&fixture, [tool("defer", false, LONG)]);
    let kept = Arc::new(Kept::default());
    let mut caller = keeping(&kept);
    let events: Arc<Mutex<Vec<ToolEvent>>> = Arc::default();
    let heard = Arc::clone(&events);
    caller.on_event = Some(Arc::new(move |event| heard.lock().expect("not poisoned").push(event.clone())));
    let result = registry.execute_with_policy(raw_call("defer", r#"{"a":1}"#), &caller).await;
    let ToolOutcome::Pending { id, expires } = &result.outcome else { panic!("{result:?}") };
    assert_eq!(kept.calls.lock().expect("not poisoned")[id].arguments, r#"{"a":1}"#);
    let events = events.lock().expect("not poisoned");
    assert!(events.contains(&ToolEvent::Pending {
        call_id: result.call_id.clone(),
        id: id.clone(),
        expires: *expires,
    }));
    let Some(ToolEvent::Finished { is_pending, error: None, .. }) = events.last() else {
        panic!("{events:?}")
    };
    assert!(is_pending);
    let row = fixture.rows().into_iter().next_back().expect("a row");
    assert_eq!((row.event, row.outcome), (RowEvent::End, Some(Outcome::Pending)));
    assert_eq!(row.operation_id.as_deref(), Some(&**id));
    assert!(registry.run_labels(&caller).contains_key(&FlowLabel::Web), "the answer comes from outside");
}

#[tokio::test]
async fn a_call_that_is_not_answered_times_out() {
    let fixture = Fixture::new();
    let registry = registry(&fixture, [tool("confirm", true, Duration::from_millis(10))]);
    let result = registry.execute_with_policy(raw_call("confirm", "{}"), &keeping(&Arc::default())).await;
    let error = result.into_result().expect_err("nothing came");
    assert_eq!((error.kind(), error.message()), (Timeout, "Tool timed out after 10ms"));
}

#[tokio::test]
async fn a_caller_without_a_store_of_calls_is_refused() {
    let fixture = Fixture::new();
    let registry = registry(&fixture, [tool("confirm", true, LONG)]);
    let result = registry.execute_with_policy(raw_call("confirm", "{}"), &caller()).await;
    assert_eq!(result.into_result().expect_err("refused").kind(), Unavailable);
}

/// After a read of the vault, the shipped policy denies requests, and an external call counts as a request.
#[tokio::test]
async fn flow_rules_hold_for_external_calls() {
    let fixture = Fixture::new();
    let registry = registry(&fixture, [tool("confirm", true, LONG)]);
    let kept = Arc::new(Kept { resolved: Some(json!("yes")), ..Kept::default() });
    let caller = keeping(&kept);
    let before = registry.execute_with_policy(raw_call("confirm", "{}"), &caller).await;
    assert_eq!(before.into_result().expect("answered").joined_text(), "yes");
    registry.add_run_labels(&caller, [(FlowLabel::Vault, "c".to_owned())]);
    let after = registry.execute_with_policy(raw_call("confirm", "{}"), &caller).await;
    let error = after.into_result().expect_err("refused");
    assert_eq!((error.kind(), error.code()), (Denied, "flow_denied"));
    assert_eq!(kept.calls.lock().expect("not poisoned").len(), 1, "the second has not left");
}

struct Redacting;

#[async_trait]
impl CallHook for Redacting {
    async fn after(
        &self,
        call: &HookedCall,
        outcome: Result<ToolOutput, ToolError>,
    ) -> Result<ToolOutput, ToolError> {
        assert_eq!(call.tool, "defer");
        outcome.map(|output| ToolOutput::text(output.joined_text().replace("4711", "…")))
    }
}

fn late(tool: &str, result: Value) -> LateResult {
    LateResult { id: "call_1".into(), tool: tool.into(), arguments: "{}".into(), result }
}

#[tokio::test]
async fn a_late_result_passes_hooks_limits_and_the_policy_of_its_time() {
    let fixture = Fixture::new();
    let builder = ToolRegistry::builder().policy(policy(&fixture)).state(fixture.state()).hook(Redacting);
    let registry = builder.external_tool(tool("defer", false, LONG)).build().expect("builds");
    let caller = caller();
    let taken = registry.take_late_result(late("defer", json!("PIN 4711")), &caller).await;
    assert_eq!(taken.model_text(), "PIN …");
    let long = registry.take_late_result(late("defer", json!("x".repeat(100_000))), &caller).await;
    assert!(long.truncated && long.model_text().len() < 20_000, "{}", long.model_text().len());
    let gone = registry.take_late_result(late("gone", json!(1)), &caller).await;
    assert!(gone.outcome.is_error(), "{gone:?}");
    let rows: Vec<_> = fixture
        .rows()
        .into_iter()
        .map(|row| (row.event, row.outcome.map(|outcome| outcome.as_str())))
        .collect();
    let result = |outcome| (RowEvent::Result, Some(outcome));
    assert_eq!(rows, [result("ok"), result("ok"), result("not_found")]);
    assert!(registry.run_labels(&caller).contains_key(&FlowLabel::Web));
}
