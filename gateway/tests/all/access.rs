//! Tests of access: the resources and operations that each token allows.

use serde_json::json;

use crate::world::{World, calls, items, says, text, tool};

#[tokio::test(flavor = "multi_thread")]
async fn without_a_known_token_nothing_is_answered() {
    let world = World::new().await;
    for token in ["", "x", "pct_0000"] {
        for path in ["/api/me", "/api/spaces", "/api/runs", "/api/agents/agt_1/events"] {
            let (status, body) = world.call(token, "GET", path, None).await;
            assert_eq!((status.as_u16(), &body["error"]["code"]), (401, &json!("unauthorized")), "{path}");
        }
    }
    for path in ["/healthz", "/openapi.json"] {
        assert!(world.call("", "GET", path, None).await.0.is_success(), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_token_is_refused() {
    let world = World::new().await;
    let (id, _) = world.user("Ada").await;
    let made =
        world.ok(&world.admin, "POST", "/api/tokens", Some(json!({"subject": "user", "id": id}))).await;
    let token = text(&made, "token");
    assert_eq!(world.ok(&token, "GET", "/api/me", None).await["name"], "Ada");
    let path = format!("/api/tokens/{}", text(&made, "id"));
    world.ok(&world.admin, "DELETE", &path, None).await;
    assert_eq!(world.call(&token, "GET", "/api/me", None).await.0.as_u16(), 401);
    let listed = world.ok(&world.admin, "GET", "/api/tokens", None).await;
    assert!(!listed.to_string().contains(&token), "a listing has no secret");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stranger_sees_no_space_run_or_call_of_others() {
    let world = World::new().await;
    let fetch = tool("fetch", "external", json!({"visible": false, "isAsync": true}));
    let agent = world.agent("Assistant", json!([fetch])).await;
    let other_agent = world.agent("Other", json!([])).await;
    let (ada, ada_token) = world.user("Ada").await;
    let (_, stranger) = world.user("Eve").await;
    let other_token = world.token("agent", &other_agent).await;
    let space = world.space("Work", &[&ada, &agent]).await;
    world.plays([calls(&[("fetch", json!({}))]), says("Asked.")]);
    world.say(&ada_token, &space, "Fetch it").await;
    let call = world.a_call("pending").await;
    let (run, id) = (text(&call, "runId"), text(&call, "callId"));
    for token in [&stranger, &other_token] {
        for path in [
            format!("/api/spaces/{space}"),
            format!("/api/spaces/{space}/messages"),
            format!("/api/spaces/{space}/members"),
            format!("/api/spaces/{space}/events"),
            format!("/api/agents/{agent}"),
            format!("/api/agents/{agent}/events"),
            format!("/api/agents/{agent}/inbox"),
            format!("/api/runs/{run}"),
            format!("/api/runs/{run}/rows"),
            format!("/api/runs/{run}/events"),
            format!("/api/runs?agentId={agent}"),
            format!("/api/calls/{id}"),
        ] {
            assert_eq!(world.call(token, "GET", &path, None).await.0.as_u16(), 404, "{path}");
        }
        let (status, _) = world.submit(token, &call, json!(1)).await;
        assert_eq!(status.as_u16(), 404, "ids of others say nothing");
        assert!(items(&world.ok(token, "GET", "/api/spaces", None).await).is_empty());
    }
    for path in ["/api/runs", "/api/calls", "/api/agents"] {
        assert_eq!(items(&world.ok(&stranger, "GET", path, None).await).len(), 0, "{path}");
        assert_eq!(items(&world.ok(&ada_token, "GET", path, None).await).len(), 1, "{path}");
    }
    for path in ["/api/users", "/api/tokens"] {
        assert_eq!(world.call(&ada_token, "GET", path, None).await.0.as_u16(), 403, "{path}");
    }
    // A person cannot answer a call that no space shows, because it is meant for a program.
    assert_eq!(world.submit(&ada_token, &call, json!(1)).await.0.as_u16(), 403);
    let sdk = world.token("agent", &agent).await;
    assert!(world.submit(&sdk, &call, json!(1)).await.0.is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_a_run_is_for_this_run() {
    let world = World::new().await;
    let fetch = tool("fetch", "external", json!({"visible": false, "isAsync": true}));
    let agent = world.agent("Assistant", json!([fetch])).await;
    let (token, space) = world.meet(&agent).await;
    world.plays([
        calls(&[("fetch", json!({}))]),
        says("Asked."),
        calls(&[("fetch", json!({}))]),
        says("Asked."),
    ]);
    world.say(&token, &space, "Once").await;
    world.ended_runs(&agent, 1).await;
    world.say(&token, &space, "Twice").await;
    let runs = world.ended_runs(&agent, 2).await;
    let (first, second) = (text(&runs[0], "id"), text(&runs[1], "id"));
    let own = world.token("run", &first).await;
    world.ok(&own, "GET", &format!("/api/runs/{first}"), None).await;
    assert_eq!(world.call(&own, "GET", &format!("/api/runs/{second}"), None).await.0.as_u16(), 404);
    let calls = items(&world.ok(&own, "GET", "/api/calls", None).await);
    assert_eq!(calls.len(), 1);
    // The token of a run gives no access to the spaces, the inbox, the notes and the events of its agent.
    assert_eq!(items(&world.ok(&own, "GET", "/api/spaces", None).await), [json!(null); 0]);
    for path in [
        format!("/api/spaces/{space}"),
        format!("/api/spaces/{space}/members"),
        format!("/api/spaces/{space}/messages"),
        format!("/api/spaces/{space}/events"),
        format!("/api/agents/{agent}/inbox"),
        format!("/api/agents/{agent}/memories"),
        format!("/api/agents/{agent}/events"),
    ] {
        assert_eq!(world.call(&own, "GET", &path, None).await.0.as_u16(), 404, "{path}");
    }
    assert!(world.submit(&own, &calls[0], json!({"done": true})).await.0.is_success());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_does_not_approve_its_own_calls() {
    let world = World::with_policy("\n[tools.act]\napproval = \"ask\"\n").await;
    let act = tool("act", "internal", json!({}));
    // The policy names the tool, so the registry must know in advance that it will be added.
    let agent = world.agent("Assistant", json!([act])).await;
    let (token, space) = world.meet(&agent).await;
    let mut events = world.events(&world.admin, &format!("/api/agents/{agent}/events"), None).await;
    world.plays([calls(&[("act", json!({"a": 1}))]), says("Done.")]);
    world.say(&token, &space, "Act").await;
    let asked = events.until("approval.requested").await.pop().expect("a question").data["approval"].clone();
    let path = format!("/api/approvals/{}", text(&asked, "id"));
    let answer = json!({"decision": "approve", "hash": asked["hash"]});
    let own = world.token("agent", &agent).await;
    assert_eq!(world.call(&own, "POST", &path, Some(answer.clone())).await.0.as_u16(), 403);
    let wrong = json!({"decision": "approve", "hash": "0".repeat(64)});
    assert_eq!(world.call(&token, "POST", &path, Some(wrong)).await.0.as_u16(), 409);
    let answered = world.ok(&token, "POST", &path, Some(answer.clone())).await;
    assert_eq!(answered["status"], "approved");
    assert_eq!(world.call(&token, "POST", &path, Some(answer)).await.0.as_u16(), 409, "one answer counts");
    world.ended_runs(&agent, 1).await;
    assert_eq!(world.tool_results(), [r#"{"args":{"a":1},"success":true}"#]);
}
