//! The request that an approver sees, and that an approval covers only this request.

use std::collections::BTreeMap;

use portcullis_testing::Fixture;
use portcullis_tools::approval::ApprovalRequest;
use portcullis_types::{SafetyTier, escape_for_display};

use super::{HARMLESS, always_approve, fixture, spy};
use crate::support::{Spy, caller_asking, enabling_entry, native_registry, raw_call};

async fn request(fixture: &Fixture, spy: Spy, tool: &str, arguments: &str) -> ApprovalRequest {
    let approver = always_approve();
    let registry = native_registry(fixture, [spy]);
    let result =
        registry.execute_with_policy(raw_call(tool, arguments), &caller_asking(approver.clone())).await;
    result.into_result().expect("approved");
    approver.requests().remove(0)
}

#[tokio::test]
async fn the_question_shows_the_call_and_what_it_may_touch() {
    let request = request(&fixture(), spy(), "spy", HARMLESS).await;
    assert_eq!((&*request.tool, request.tier, request.unconfined), ("spy", SafetyTier::SideEffecting, true));
    assert_eq!((&*request.agent_id, &*request.run_id), ("tester", "run"));
    assert_eq!(request.arguments, HARMLESS, "in full");
    let mounts: Vec<_> =
        request.grant.mounts.iter().map(|mount| (mount.name.as_str(), mount.access.as_str())).collect();
    assert_eq!(mounts, [("shared", "write"), ("tmp", "write")]);
    assert_eq!(request.binding.len(), 64);
}

#[tokio::test]
async fn a_binding_depends_on_tool_arguments_grant_and_policy_alone() {
    let profile = |fixture: Fixture| {
        fixture.with_policy_edit(
            "[profiles.FileReadWrite]\nmounts = { shared = \"write\", tmp = \"write\" }",
            "[profiles.FileReadWrite]\nmounts = { shared = \"write\" }",
        )
    };
    // A tool without a path argument, so that only its name can change.
    let spy_named = |name: &str| Spy::repeating(name).requiring_approval();
    let other_fixture = || Fixture::new().with_policy(&enabling_entry("other"));
    let mut bindings: BTreeMap<String, &str> = BTreeMap::new();
    for (description, request) in [
        ("the call", request(&fixture(), spy(), "spy", HARMLESS).await),
        ("other arguments", request(&fixture(), spy(), "spy", r#"{"path":"/shared/a","n":2}"#).await),
        ("another path", request(&fixture(), spy(), "spy", r#"{"path":"/shared/b","n":1}"#).await),
        ("another order", request(&fixture(), spy(), "spy", r#"{"n":1,"path":"/shared/a"}"#).await),
        ("another grant", request(&profile(fixture()), spy(), "spy", HARMLESS).await),
        (
            "another limit",
            request(
                &fixture().with_policy_edit("concurrency = 10", "concurrency = 9"),
                spy(),
                "spy",
                HARMLESS,
            )
            .await,
        ),
        ("another tool", request(&other_fixture(), spy_named("other"), "other", "{}").await),
        ("that tool, other policy", {
            let fixture =
                other_fixture().with_policy_edit("calls_per_minute = 600", "calls_per_minute = 599");
            request(&fixture, spy_named("other"), "other", "{}").await
        }),
    ] {
        let before = bindings.insert(request.binding, description);
        assert_eq!(before, None, "{description} has the binding of another");
    }
    let repeated_request = request(&fixture(), spy(), "spy", HARMLESS).await;
    assert_eq!(bindings.get(&repeated_request.binding), Some(&"the call"), "another call of the same");
}

#[tokio::test]
async fn deceptive_arguments_are_kept_and_can_be_shown_escaped() {
    let deceptive = "{\"path\":\"/shared/\u{202e}txt.exe\\u001b[2J\"}";
    let request = request(&fixture(), spy(), "spy", deceptive).await;
    assert_eq!(request.arguments, deceptive);
    let escaped = escape_for_display(&request.arguments).to_string();
    assert!(escaped.is_ascii() && escaped.contains("\\u{202e}"), "{escaped}");
}
