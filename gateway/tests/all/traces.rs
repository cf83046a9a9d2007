//! The traces of specification 003, event for event, on both stores: a confirmation that the run does not
//! wait for, a result that arrives in time, and a result that arrives late.

use portcullis_store::{PostgresOptions, SqliteOptions, open_gateway_postgres, open_gateway_sqlite};
use serde_json::json;

use crate::{
    postgres_server::Server,
    world::{ReadEvent, World, calls, says, text, tool},
};

/// A folder for a gateway, and both stores.
async fn worlds(server: Option<&Server>) -> Vec<World> {
    let folder = || {
        let private = std::os::unix::fs::PermissionsExt::from_mode(0o700);
        tempfile::Builder::new().permissions(private).tempdir().expect("a folder")
    };
    let mut worlds = Vec::new();
    let state = folder();
    let sqlite = open_gateway_sqlite(&state.path().join("gateway.db"), SqliteOptions::default()).await;
    worlds.push(World::in_store(state, sqlite.expect("a store"), "").await);
    if let Some(server) = server {
        let url = server.new_database().await;
        let store = open_gateway_postgres(&url, PostgresOptions::default()).await.expect("a store");
        worlds.push(World::in_store(folder(), store, "").await);
    }
    worlds
}

fn kinds(events: &[ReadEvent]) -> Vec<&str> {
    events.iter().map(|event| event.kind.as_str()).collect()
}

/// Removes the events of unfinished streams, whose number depends on timing.
fn stored(events: &[ReadEvent]) -> Vec<ReadEvent> {
    events.iter().filter(|event| event.id.is_some()).cloned().collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmation_that_is_not_waited_for_reaches_the_next_cycle() {
    let server = Server::start();
    for world in worlds(server.as_ref()).await {
        let confirm = tool("confirmAction", "space", json!({"isAsync": true}));
        let agent =
            world.agent("Assistant", json!([confirm, tool("bookHotel", "internal", json!({}))])).await;
        let (husam, token) = world.user("Husam").await;
        let space = world.space("Travel", &[&husam, &agent]).await;
        let mut in_space = world.events(&token, &format!("/api/spaces/{space}/events"), None).await;
        let mut of_agent = world.events(&world.admin, &format!("/api/agents/{agent}/events"), None).await;
        world.plays([
            calls(&[
                ("enter_space", json!({"spaceId": space})),
                ("confirmAction", json!({"title": "Confirm booking?", "message": "A hotel in Tokyo"})),
            ]),
            says("Asked Husam to confirm. Moving on to other tasks."),
            calls(&[("bookHotel", json!({"city": "Tokyo"}))]),
            says("Booked."),
        ]);
        world.say(&token, &space, "Book a hotel in Tokyo").await;

        // Cycle 15.
        let first = of_agent.until("run.finished").await;
        assert_eq!(
            kinds(&stored(&first)),
            [
                "run.started",
                "tool.started", // enter_space
                "tool.started", // confirmAction
                "tool.done",    // enter_space
                "call.pending",
                "run.finished",
            ]
        );
        let prompts = world.prompts();
        assert!(prompts[0].starts_with("[Husam: \"Book a hotel in Tokyo\"] (spaceId: "), "{prompts:?}");
        let call = world.a_call("pending").await;
        let id = text(&call, "callId");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&world.tool_results()[1]).expect("JSON"),
            json!({"status": "pending", "pendingToolCallId": id})
        );
        let messages = world.messages(&space).await;
        assert_eq!(messages.len(), 2);
        assert_eq!(
            (&messages[1]["status"], &messages[1]["kind"]),
            (&json!("requires_action"), &json!("tool"))
        );
        assert_eq!(messages[1]["tool"]["input"]["title"], "Confirm booking?");
        assert_eq!(messages[1]["tool"]["callId"], json!(id));

        // The person answers in the space, and the agent wakes.
        let (status, taken) = world.submit(&token, &call, json!({"confirmed": true})).await;
        assert_eq!((status.as_u16(), &taken["delivery"]), (200, &json!("inbox")), "{taken}");
        let second = of_agent.until("run.finished").await;
        assert_eq!(
            kinds(&stored(&second)),
            ["call.resolved", "run.started", "tool.started", "tool.done", "run.finished"],
            "an internal tool is invisible by default, and so needs no space"
        );
        let prompts = world.prompts();
        let expected = format!("[Tool Result: confirmAction] (callId: {id}) {{\"confirmed\":true}}");
        assert_eq!(prompts.last(), Some(&expected));

        let shown = stored(&in_space.until("call.resolved").await);
        assert_eq!(
            kinds(&shown),
            [
                "message.created", // Husam's words
                "message.created", // the call
                "message.updated", // it waits
                "call.pending",
                "run.finished",
                "message.updated", // the result
                "call.resolved",
            ]
        );
        let message = &shown[5].data["message"];
        assert_eq!(message["status"], "complete");
        assert_eq!(message["tool"]["output"], json!({"confirmed": true}));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_in_time_is_returned_inline() {
    let server = Server::start();
    for world in worlds(server.as_ref()).await {
        let fetch = tool("fetchExternalData", "external", json!({"visible": false, "timeout": 60_000}));
        let agent = world.agent("Assistant", json!([fetch])).await;
        let (husam, token) = world.user("Husam").await;
        let space = world.space("Work", &[&husam, &agent]).await;
        let sdk = world.token("agent", &agent).await;
        let mut of_agent = world.events(&sdk, &format!("/api/agents/{agent}/events"), None).await;
        world.plays([
            calls(&[("fetchExternalData", json!({"query": "active projects"}))]),
            says("Found 3 active projects."),
        ]);
        world.say(&token, &space, "Look up active projects").await;
        let before = of_agent.until("call.pending").await;
        let pending = &before.last().expect("an event").data;
        assert_eq!(pending["status"], "waiting");
        assert_eq!(pending["args"], json!({"query": "active projects"}));
        let result = json!({"source": "pm-api", "results": [1, 2, 3]});
        let (status, taken) = world.submit(&sdk, pending, result.clone()).await;
        assert_eq!((status.as_u16(), &taken["delivery"]), (200, &json!("inline")), "{taken}");
        let after = stored(&of_agent.until("run.finished").await);
        assert_eq!(kinds(&after), ["call.resolved", "tool.done", "run.finished"]);
        assert_eq!(after[1].data["output"], result);
        let results = world.tool_results();
        assert_eq!(serde_json::from_str::<serde_json::Value>(&results[0]).expect("JSON"), result);
        assert_eq!(world.messages(&space).await.len(), 1, "an invisible call is not a message");
        let inbox = world.ok(&sdk, "GET", &format!("/api/agents/{agent}/inbox"), None).await;
        assert_eq!(inbox["items"], json!([]), "the result went only to the run");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_late_result_reaches_the_agent_after_the_error() {
    let server = Server::start();
    for world in worlds(server.as_ref()).await {
        let fetch = tool("fetchExternalData", "external", json!({"visible": false, "timeout": 50}));
        let agent = world.agent("Assistant", json!([fetch])).await;
        let (husam, token) = world.user("Husam").await;
        let space = world.space("Work", &[&husam, &agent]).await;
        let sdk = world.token("agent", &agent).await;
        let mut of_agent = world.events(&sdk, &format!("/api/agents/{agent}/events"), None).await;
        world.plays([
            calls(&[("fetchExternalData", json!({"query": "active projects"}))]),
            says("It took too long."),
        ]);
        world.say(&token, &space, "Look up active projects").await;
        let first = stored(&of_agent.until("run.finished").await);
        assert_eq!(
            kinds(&first),
            ["run.started", "tool.started", "call.pending", "tool.error", "run.finished"]
        );
        assert_eq!(first[3].data["error"], "Tool timed out after 50ms");
        assert_eq!(world.tool_results(), [r#"{"error":"Tool timed out after 50ms"}"#]);
        let call = world.a_call("pending").await;
        let (status, taken) = world.submit(&sdk, &call, json!({"late": true})).await;
        assert_eq!((status.as_u16(), &taken["delivery"]), (200, &json!("inbox")), "{taken}");
        let second = stored(&of_agent.until("run.finished").await);
        assert_eq!(kinds(&second), ["call.resolved", "run.started", "run.finished"]);
        let expected =
            format!("[Tool Result: fetchExternalData] (callId: {}) {{\"late\":true}}", text(&call, "callId"));
        assert_eq!(world.prompts().last(), Some(&expected));
    }
}
