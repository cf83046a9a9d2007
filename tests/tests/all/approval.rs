//! Approvals: the approver, the effect of an answer, and the call that an answer is bound to.

mod answers;
mod binding;

use std::sync::{Arc, atomic::Ordering};

use portcullis_testing::World;
use portcullis_tools::{
    Caller, ToolRegistry, ToolResult,
    approval::{ApprovalAnswer, ApprovalRule},
};
use portcullis_types::{Access, ArgumentRole, SafetyTier, ToolErrorKind::Denied};
use serde_json::json;

use crate::{
    pipeline::Always,
    support::{Scripted, Spy, asking, caller, enabled, natives, raw},
};

/// A tool that requires approval itself, writes to its `path`, and answers with its arguments.
fn spy() -> Spy {
    let properties = json!({"path": {"type": "string"}, "n": {"type": "integer", "maximum": 9}});
    Spy::repeating("spy")
        .tier(SafetyTier::SideEffecting)
        .parameters(json!({"type": "object", "properties": properties, "required": ["path"]}))
        .role(ArgumentRole::path("path", Access::Write))
        .requiring_approval()
}

const HARMLESS: &str = r#"{"path":"/shared/a","n":1}"#;

fn world() -> World {
    World::new().with_policy(&enabled("spy"))
}

async fn run(registry: &ToolRegistry, caller: &Caller) -> ToolResult {
    registry.execute_with_policy(raw("spy", HARMLESS), caller).await
}

/// One call of the spy: its outcome, whether it ran, and the row's `approval`.
async fn outcome(world: &World, spy: Spy, caller: &Caller) -> (Result<String, String>, bool, Option<String>) {
    let calls = spy.calls();
    let registry = natives(world, [spy]);
    let result = run(&registry, caller).await;
    let row = world.rows().pop().expect("a row");
    let approval = row.approval.map(|text| text.to_string());
    let outcome = match result.outcome {
        Ok(output) => Ok(output.joined_text()),
        Err(error) => {
            assert_eq!(error.kind(), Denied, "{error}");
            Err(error.code().to_owned())
        }
    };
    (outcome, calls.load(Ordering::SeqCst) == 1, approval)
}

fn ran(approval: &str) -> (Result<String, String>, bool, Option<String>) {
    (Ok(HARMLESS.to_owned()), true, Some(approval.to_owned()))
}

fn refused(code: &str) -> (Result<String, String>, bool, Option<String>) {
    (Err(code.to_owned()), false, Some(code.to_owned()))
}

fn yes() -> Scripted {
    Scripted::new(|_, _| ApprovalAnswer::Approve)
}

#[tokio::test]
async fn a_tool_that_requires_approval_runs_only_if_somebody_says_yes() {
    assert_eq!(outcome(&world(), spy(), &caller()).await, refused("approval_unavailable"));
    assert_eq!(outcome(&world(), spy(), &asking(yes())).await, ran("approved"));
    let no = Scripted::new(|_, _| ApprovalAnswer::Deny { reason: None });
    assert_eq!(outcome(&world(), spy(), &asking(no)).await, refused("approval_refused"));
    // The policy cannot waive the approval that the tool requires.
    let allowing = World::new().with_policy(&format!("{}approval = \"allow\"", enabled("spy")));
    assert_eq!(outcome(&allowing, spy(), &caller()).await, refused("approval_unavailable"));
}

#[tokio::test]
async fn the_strictest_of_tool_tier_entry_and_caller_decides() {
    let of_tier = |tier| {
        let properties = json!({"path": {"type": "string"}, "n": {"type": "integer"}});
        Spy::repeating("spy").tier(tier).parameters(json!({"type": "object", "properties": properties}))
    };
    let auto = || of_tier(SafetyTier::SideEffecting);
    let approval =
        |value: &str| World::new().with_policy(&format!("{}approval = \"{value}\"", enabled("spy")));
    let wanting = |rule: ApprovalRule, mut caller: Caller| {
        caller.approval_policy = Some(Arc::new(Always(rule)));
        caller
    };
    let deny = || ApprovalRule::Deny { reason: "closed".to_owned() };

    assert_eq!(outcome(&world(), auto(), &caller()).await, ran("not_required"));
    assert_eq!(outcome(&approval("allow"), auto(), &caller()).await, ran("not_required"));
    assert_eq!(outcome(&approval("ask"), auto(), &caller()).await, refused("approval_unavailable"));
    assert_eq!(outcome(&approval("ask"), auto(), &asking(yes())).await, ran("approved"));
    let (result, ran_at_all, _) = outcome(&approval("deny"), auto(), &asking(yes())).await;
    assert_eq!((result, ran_at_all), (Err("approval_denied".to_owned()), false), "no question is put");

    let allow = wanting(ApprovalRule::Allow, caller());
    assert_eq!(outcome(&approval("ask"), auto(), &allow).await, refused("approval_unavailable"));
    let ask = wanting(ApprovalRule::Ask, caller());
    assert_eq!(outcome(&world(), auto(), &ask).await, refused("approval_unavailable"));
    let ask = wanting(ApprovalRule::Ask, asking(yes()));
    assert_eq!(outcome(&world(), auto(), &ask).await, ran("approved"));
    let (result, ran_at_all, _) = outcome(&world(), auto(), &wanting(deny(), asking(yes()))).await;
    assert_eq!((result, ran_at_all), (Err("approval_denied".to_owned()), false));

    let privileged = || of_tier(SafetyTier::Privileged);
    assert_eq!(outcome(&world(), privileged(), &caller()).await, refused("approval_unavailable"));
    assert_eq!(outcome(&world(), privileged(), &asking(yes())).await, ran("approved"));
}

#[tokio::test]
async fn the_reason_of_a_no_reaches_the_model() {
    let mut caller =
        asking(Scripted::new(|_, _| ApprovalAnswer::Deny { reason: Some("ask me after lunch".to_owned()) }));
    let result = run(&natives(&world(), [spy()]), &caller).await;
    assert_eq!(
        result.model_text(),
        "Tool execution failed: the call of `spy` was not approved (ask me after lunch)"
    );
    let rule = ApprovalRule::Deny { reason: "not in this run".to_owned() };
    caller.approval_policy = Some(Arc::new(Always(rule)));
    let result = run(&natives(&world(), [spy()]), &caller).await;
    assert!(result.model_text().ends_with("(not in this run)"), "{}", result.model_text());
}

#[tokio::test]
async fn a_module_from_outside_runs_only_if_somebody_says_yes() {
    let world = World::new();
    let registry = world.registry_with(&["progress_then_ok"]).await;
    let call = || raw("progress_then_ok", "{}");
    let result = registry.execute_with_policy(call(), &caller()).await;
    assert_eq!(result.outcome.expect_err("nobody to ask").code(), "approval_unavailable");
    let approver = yes();
    let result = registry.execute_with_policy(call(), &asking(approver.clone())).await;
    assert_eq!(result.outcome.expect("approved").joined_text(), "whole");
    let request = &approver.requests()[0];
    assert!(!request.unconfined && request.grant.mounts.is_empty(), "{request:#?}");
}

#[tokio::test]
async fn the_row_of_a_refused_approval_says_what_asked_for_it() {
    let rule = async |world: &World, spy: Spy, caller: &Caller| {
        let registry = natives(world, [spy]);
        run(&registry, caller).await.outcome.expect_err("nobody to ask");
        world.rows().pop().expect("a row").rule.map(|rule| rule.to_string())
    };
    let plain = || Spy::repeating("spy").tier(SafetyTier::SideEffecting);
    let by_tool = rule(&world(), spy(), &caller()).await;
    assert_eq!(by_tool.as_deref(), Some("the tool's own declaration"));
    let entry = World::new().with_policy(&format!("{}approval = \"ask\"", enabled("spy")));
    assert_eq!(rule(&entry, plain(), &caller()).await.as_deref(), Some("tools.spy.approval"));
    let by_tier = rule(&world(), plain().tier(SafetyTier::Privileged), &caller()).await;
    assert_eq!(by_tier.as_deref(), Some("tiers.privileged.approval"));
    let mut careful = caller();
    careful.approval_policy = Some(Arc::new(Always(ApprovalRule::Ask)));
    let by_caller = rule(&world(), plain(), &careful).await;
    assert_eq!(by_caller.as_deref(), Some("the caller's approval policy"));
}
