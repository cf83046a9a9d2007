//! The request that an approver is shown, and the binding of an approval to that request alone.

use std::collections::BTreeMap;

use portcullis_testing::World;
use portcullis_tools::approval::ApprovalRequest;
use portcullis_types::{SafetyTier, escape_for_display};

use super::{HARMLESS, spy, world, yes};
use crate::support::{Spy, asking, enabled, natives, raw};

async fn request(world: &World, spy: Spy, tool: &str, arguments: &str) -> ApprovalRequest {
    let approver = yes();
    let registry = natives(world, [spy]);
    let result = registry.execute_with_policy(raw(tool, arguments), &asking(approver.clone())).await;
    result.outcome.expect("approved");
    approver.requests().remove(0)
}

#[tokio::test]
async fn the_question_shows_the_call_and_what_it_may_touch() {
    let request = request(&world(), spy(), "spy", HARMLESS).await;
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
    let profile = |world: World| {
        world.with_policy_edit(
            "[profiles.FileReadWrite]\nmounts = { shared = \"write\", tmp = \"write\" }",
            "[profiles.FileReadWrite]\nmounts = { shared = \"write\" }",
        )
    };
    // A tool without a path argument, so that its name can change alone.
    let named = |name: &str| Spy::repeating(name).requiring_approval();
    let other = || World::new().with_policy(&enabled("other"));
    let mut bindings: BTreeMap<String, &str> = BTreeMap::new();
    for (what, request) in [
        ("the call", request(&world(), spy(), "spy", HARMLESS).await),
        ("other arguments", request(&world(), spy(), "spy", r#"{"path":"/shared/a","n":2}"#).await),
        ("another path", request(&world(), spy(), "spy", r#"{"path":"/shared/b","n":1}"#).await),
        ("another order", request(&world(), spy(), "spy", r#"{"n":1,"path":"/shared/a"}"#).await),
        ("another grant", request(&profile(world()), spy(), "spy", HARMLESS).await),
        (
            "another limit",
            request(&world().with_policy_edit("concurrency = 10", "concurrency = 9"), spy(), "spy", HARMLESS)
                .await,
        ),
        ("another tool", request(&other(), named("other"), "other", "{}").await),
        ("that tool, other policy", {
            let world = other().with_policy_edit("calls_per_minute = 600", "calls_per_minute = 599");
            request(&world, named("other"), "other", "{}").await
        }),
    ] {
        let before = bindings.insert(request.binding, what);
        assert_eq!(before, None, "{what} has the binding of another");
    }
    let again = request(&world(), spy(), "spy", HARMLESS).await;
    assert_eq!(bindings.get(&again.binding), Some(&"the call"), "another call of the same");
}

#[tokio::test]
async fn deceptive_arguments_are_kept_and_can_be_shown_escaped() {
    let deceptive = "{\"path\":\"/shared/\u{202e}txt.exe\\u001b[2J\"}";
    let request = request(&world(), spy(), "spy", deceptive).await;
    assert_eq!(request.arguments, deceptive);
    let shown = escape_for_display(&request.arguments).to_string();
    assert!(shown.is_ascii() && shown.contains("\\u{202e}"), "{shown}");
}
