//! A gateway that dies and is started again.

use serde_json::json;

use crate::world::{World, calls, says, text, tool};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_that_waits_goes_on_after_the_gateway_died() {
    let mut world = World::new().await;
    let fetch = tool("fetch", "external", json!({"visible": true, "timeout": 600_000}));
    let agent = world.agent("Assistant", json!([fetch])).await;
    let (token, space) = world.meet(&agent).await;
    world.plays([
        calls(&[("enter_space", json!({"spaceId": space})), ("fetch", json!({"query": "q"}))]),
        calls(&[("send_message", json!({"text": "I have it."}))]),
        says("Done."),
    ]);
    world.say(&token, &space, "Fetch it").await;
    let call = world.a_call("waiting").await;
    world.restart().await;
    let (status, _) = world.submit(&token, &call, json!({"found": true})).await;
    assert!(status.is_success(), "{status}");
    let runs = world.ended_runs(&agent, 1).await;
    assert_eq!((runs.len(), text(&runs[0], "status").as_str()), (1, "completed"));
    let messages = world.messages(&space).await;
    let texts: Vec<_> = messages.iter().map(|message| text(message, "text")).collect();
    assert_eq!(texts, ["Fetch it", "", "I have it."], "the agent is in its space again");
    assert_eq!(messages[1]["status"], "complete");
    assert_eq!(messages[1]["tool"]["output"], json!({"found": true}));
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_that_came_while_no_gateway_worked_are_taken_once() {
    let mut world = World::new().await;
    let agent = world.agent("Assistant", json!([])).await;
    let (token, space) = world.meet(&agent).await;
    world.stop().await;
    for text in ["one", "two"] {
        world.say(&token, &space, text).await;
    }
    world.restart().await;
    world.ended_runs(&agent, 1).await;
    let prompts = world.prompts();
    assert_eq!(prompts.len(), 1, "{prompts:?}");
    let lines: Vec<_> = prompts[0].lines().map(|line| line.split("] (").next().expect("a line")).collect();
    assert_eq!(lines, ["[Ada: \"one\"", "[Ada: \"two\""]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_that_was_removed_wakes_no_more() {
    let world = World::new().await;
    let agent = world.agent("Assistant", json!([])).await;
    let (token, space) = world.meet(&agent).await;
    let own = world.token("agent", &agent).await;
    world.ok(&world.admin, "DELETE", &format!("/api/agents/{agent}"), None).await;
    world.say(&token, &space, "Hello?").await;
    assert_eq!(world.call(&own, "GET", "/api/me", None).await.0.as_u16(), 401);
    let members = world.ok(&token, "GET", &format!("/api/spaces/{space}/members"), None).await;
    assert_eq!(members["items"].as_array().expect("members").len(), 1);
    assert!(world.prompts().is_empty());
}
