//! Approvals: the approver, the effect of an answer, and the call that an answer covers.

mod answers;
mod binding;

use std::sync::{Arc, atomic::Ordering};

use portcullis_testing::Fixture;
use portcullis_tools::{
    Caller, ToolRegistry, ToolResult,
    approval::{ApprovalAnswer, ApprovalRule},
};
use portcullis_types::{Access, ArgumentRole, SafetyTier, ToolErrorKind::Denied};
use serde_json::json;

use crate::{
    pipeline::Always,
    support::{ScriptedApprover, Spy, caller, caller_asking, enabling_entry, native_registry, raw_call},
};

/// Creates a tool that requires approval itself, writes to its `path`, and answers with its arguments.
fn spy() -> Spy {
    let properties = json!({"path": {"type": "string"}, "n": {"type": "integer", "maximum": 9}});
    Spy::repeating("spy")
        .tier(SafetyTier::SideEffecting)
        .parameters(json!({"type": "object", "properties": properties, "required": ["path"]}))
        .role(ArgumentRole::path("path", Access::Write))
        .requiring_approval()
}

const HARMLESS: &str = r#"{"path":"/shared/a","n":1}"#;

fn fixture() -> Fixture {
    Fixture::new().with_policy(&enabling_entry("spy"))
}

async fn run(registry: &ToolRegistry, caller: &Caller) -> ToolResult {
    registry.execute_with_policy(raw_call("spy", HARMLESS), caller).await
}

/// Returns the outcome of one call of the spy, whether the spy ran, and the row's `approval`.
async fn call_outcome(
    fixture: &Fixture,
    spy: Spy,
    caller: &Caller,
) -> (Result<String, String>, bool, Option<String>) {
    let calls = spy.calls();
    let registry = native_registry(fixture, [spy]);
    let result = run(&registry, caller).await;
    let row = fixture.rows().pop().expect("a row");
    let approval = row.approval.map(|text| text.to_string());
    let call_outcome = match result.into_result() {
        Ok(output) => Ok(output.joined_text()),
        Err(error) => {
            assert_eq!(error.kind(), Denied, "{error}");
            Err(error.code().to_owned())
        }
    };
    (call_outcome, calls.load(Ordering::SeqCst) == 1, approval)
}

fn expected_run(approval: &str) -> (Result<String, String>, bool, Option<String>) {
    (Ok(HARMLESS.to_owned()), true, Some(approval.to_owned()))
}

fn expected_refusal(code: &str) -> (Result<String, String>, bool, Option<String>) {
    (Err(code.to_owned()), false, Some(code.to_owned()))
}

fn always_approve() -> ScriptedApprover {
    ScriptedApprover::new(|_, _| ApprovalAnswer::Approve)
}

#[tokio::test]
async fn a_tool_that_requires_approval_runs_only_if_approved() {
    assert_eq!(call_outcome(&fixture(), spy(), &caller()).await, expected_refusal("approval_unavailable"));
    assert_eq!(
        call_outcome(&fixture(), spy(), &caller_asking(always_approve())).await,
        expected_run("approved")
    );
    let always_deny = ScriptedApprover::new(|_, _| ApprovalAnswer::Deny { reason: None });
    assert_eq!(
        call_outcome(&fixture(), spy(), &caller_asking(always_deny)).await,
        expected_refusal("approval_refused")
    );
    // The policy cannot waive an approval that the tool requires.
    let allowing = Fixture::new().with_policy(&format!("{}approval = \"allow\"", enabling_entry("spy")));
    assert_eq!(call_outcome(&allowing, spy(), &caller()).await, expected_refusal("approval_unavailable"));
}

#[tokio::test]
async fn the_strictest_of_tool_tier_entry_and_caller_decides() {
    let spy_of_tier = |tier| {
        let properties = json!({"path": {"type": "string"}, "n": {"type": "integer"}});
        Spy::repeating("spy").tier(tier).parameters(json!({"type": "object", "properties": properties}))
    };
    let automatic_spy = || spy_of_tier(SafetyTier::SideEffecting);
    let approval =
        |value: &str| Fixture::new().with_policy(&format!("{}approval = \"{value}\"", enabling_entry("spy")));
    let with_caller_rule = |rule: ApprovalRule, mut caller: Caller| {
        caller.approval_policy = Some(Arc::new(Always(rule)));
        caller
    };
    let deny = || ApprovalRule::Deny { reason: "closed".to_owned() };

    assert_eq!(call_outcome(&fixture(), automatic_spy(), &caller()).await, expected_run("not_required"));
    assert_eq!(
        call_outcome(&approval("allow"), automatic_spy(), &caller()).await,
        expected_run("not_required")
    );
    assert_eq!(
        call_outcome(&approval("ask"), automatic_spy(), &caller()).await,
        expected_refusal("approval_unavailable")
    );
    assert_eq!(
        call_outcome(&approval("ask"), automatic_spy(), &caller_asking(always_approve())).await,
        expected_run("approved")
    );
    let (result, ran_at_all, _) =
        call_outcome(&approval("deny"), automatic_spy(), &caller_asking(always_approve())).await;
    assert_eq!((result, ran_at_all), (Err("approval_denied".to_owned()), false), "no question is put");

    let allow = with_caller_rule(ApprovalRule::Allow, caller());
    assert_eq!(
        call_outcome(&approval("ask"), automatic_spy(), &allow).await,
        expected_refusal("approval_unavailable")
    );
    let ask = with_caller_rule(ApprovalRule::Ask, caller());
    assert_eq!(
        call_outcome(&fixture(), automatic_spy(), &ask).await,
        expected_refusal("approval_unavailable")
    );
    let ask = with_caller_rule(ApprovalRule::Ask, caller_asking(always_approve()));
    assert_eq!(call_outcome(&fixture(), automatic_spy(), &ask).await, expected_run("approved"));
    let (result, ran_at_all, _) =
        call_outcome(&fixture(), automatic_spy(), &with_caller_rule(deny(), caller_asking(always_approve())))
            .await;
    assert_eq!((result, ran_at_all), (Err("approval_denied".to_owned()), false));

    let privileged_spy = || spy_of_tier(SafetyTier::Privileged);
    assert_eq!(
        call_outcome(&fixture(), privileged_spy(), &caller()).await,
        expected_refusal("approval_unavailable")
    );
    assert_eq!(
        call_outcome(&fixture(), privileged_spy(), &caller_asking(always_approve())).await,
        expected_run("approved")
    );
}

#[tokio::test]
async fn the_reason_of_a_no_reaches_the_model() {
    let mut caller = caller_asking(ScriptedApprover::new(|_, _| ApprovalAnswer::Deny {
        reason: Some("ask me after lunch".to_owned()),
    }));
    let result = run(&native_registry(&fixture(), [spy()]), &caller).await;
    assert_eq!(
        result.model_text(),
        "Tool execution failed: the call of `spy` was not approved (ask me after lunch)"
    );
    let rule = ApprovalRule::Deny { reason: "not in this run".to_owned() };
    caller.approval_policy = Some(Arc::new(Always(rule)));
    let result = run(&native_registry(&fixture(), [spy()]), &caller).await;
    assert!(result.model_text().ends_with("(not in this run)"), "{}", result.model_text());
}

#[tokio::test]
async fn a_foreign_module_runs_only_if_approved() {
    let fixture = Fixture::new();
    let registry = fixture.registry_with(&["progress_then_ok"]).await;
    let call = || raw_call("progress_then_ok", "{}");
    let result = registry.execute_with_policy(call(), &caller()).await;
    assert_eq!(result.into_result().expect_err("nobody to ask").code(), "approval_unavailable");
    let approver = always_approve();
    let result = registry.execute_with_policy(call(), &caller_asking(approver.clone())).await;
    assert_eq!(result.into_result().expect("approved").joined_text(), "whole");
    let request = &approver.requests()[0];
    assert!(!request.unconfined && request.grant.mounts.is_empty(), "{request:#?}");
}

#[tokio::test]
async fn the_row_of_a_refused_approval_says_what_asked_for_it() {
    let rule = async |fixture: &Fixture, spy: Spy, caller: &Caller| {
        let registry = native_registry(fixture, [spy]);
        run(&registry, caller).await.into_result().expect_err("nobody to ask");
        fixture.rows().pop().expect("a row").rule.map(|rule| rule.to_string())
    };
    let plain = || Spy::repeating("spy").tier(SafetyTier::SideEffecting);
    let tool_rule = rule(&fixture(), spy(), &caller()).await;
    assert_eq!(tool_rule.as_deref(), Some("the tool's own declaration"));
    let entry = Fixture::new().with_policy(&format!("{}approval = \"ask\"", enabling_entry("spy")));
    assert_eq!(rule(&entry, plain(), &caller()).await.as_deref(), Some("tools.spy.approval"));
    let tier_rule = rule(&fixture(), plain().tier(SafetyTier::Privileged), &caller()).await;
    assert_eq!(tier_rule.as_deref(), Some("tiers.privileged.approval"));
    let mut asking_caller = caller();
    asking_caller.approval_policy = Some(Arc::new(Always(ApprovalRule::Ask)));
    let caller_rule = rule(&fixture(), plain(), &asking_caller).await;
    assert_eq!(caller_rule.as_deref(), Some("the caller's approval policy"));
}
