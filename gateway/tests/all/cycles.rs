//! Cycles: inboxes, spaces, built-in tools.

use serde_json::{Value, json};

use crate::world::{World, calls, items, says, text, tool};

/// A world with an agent, a person and a space with both.
struct Scene {
    world: World,
    agent: String,
    token: String,
    space: String,
}

impl Scene {
    async fn new(tools: Value) -> Self {
        let world = World::new().await;
        let agent = world.agent("Assistant", tools).await;
        let (person, token) = world.user("Ada").await;
        let space = world.space("Home", &[&person, &agent]).await;
        Self { world, agent, token, space }
    }

    /// Sends a message, and returns the results that the model read in its cycle.
    async fn results(&self, number: usize, turns: impl IntoIterator<Item = String>) -> Vec<Value> {
        self.world.plays(turns);
        self.world.say(&self.token, &self.space, "Go on").await;
        self.world.ended_runs(&self.agent, number).await;
        let results = self.world.tool_results();
        results.iter().map(|result| serde_json::from_str(result).expect("JSON")).collect()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visible_tool_outside_of_a_space_is_refused_in_these_words() {
    let scene = Scene::new(json!([tool("confirmAction", "space", json!({"isAsync": true}))])).await;
    let results = scene.results(1, [calls(&[("confirmAction", json!({}))]), says("No.")]).await;
    let expected = "Tool \"confirmAction\" is visible but you are not in a space. Call enter_space first.";
    assert_eq!(results, [json!({"error": expected})]);
    let rows = scene.world.ok(&scene.world.admin, "GET", "/api/calls", None).await;
    assert!(items(&rows).is_empty(), "no call waits");
    assert_eq!(scene.world.messages(&scene.space).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_internal_tool_answers_immediately_and_is_shown_if_visible() {
    let scene = Scene::new(json!([tool("displayChart", "internal", json!({"visible": true}))])).await;
    let enter = ("enter_space", json!({"spaceId": scene.space}));
    let chart = ("displayChart", json!({"title": "T", "values": [1, 2]}));
    let results = scene.results(1, [calls(&[enter, chart]), says("Shown.")]).await;
    let output = json!({"success": true, "args": {"title": "T", "values": [1, 2]}});
    assert_eq!(results[1], output);
    let message = scene.world.messages(&scene.space).await.pop().expect("a message");
    assert_eq!((&message["status"], &message["tool"]["output"]), (&json!("complete"), &output));
    let path = format!("/api/spaces/{}/messages", scene.space);
    let reply = json!({"text": "Nice", "replyTo": message["id"]});
    let (status, _) = scene.world.call(&scene.token, "POST", &path, Some(reply)).await;
    assert_eq!(status.as_u16(), 409, "a message of a tool cannot be replied to");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_sends_and_reads_messages_in_its_space_alone() {
    let scene = Scene::new(json!([])).await;
    let foreign = scene.world.space("Foreign", &[]).await;
    let results = scene
        .results(
            1,
            [
                calls(&[("send_message", json!({"text": "too early"}))]),
                calls(&[("enter_space", json!({"spaceId": foreign}))]),
                calls(&[("read_messages", json!({"spaceId": foreign}))]),
                calls(&[("enter_space", json!({"spaceId": scene.space}))]),
                calls(&[("send_message", json!({"text": "Hello"}))]),
                calls(&[("read_messages", json!({"limit": 1}))]),
                calls(&[("read_messages", json!({"limit": 1, "offset": 1}))]),
                calls(&[("leave_space", json!({}))]),
                calls(&[("send_message", json!({"text": "too late"}))]),
                says("Done."),
            ],
        )
        .await;
    assert_eq!(results[0]["error"], "you are not in a space; call enter_space first");
    for refused in &results[1..3] {
        let message = text(refused, "error");
        assert!(message.starts_with("there is no space `spc_"), "{message}");
    }
    assert_eq!(results[3]["members"].as_array().expect("members").len(), 2);
    assert_eq!(results[5]["messages"][0]["text"], "Hello");
    assert_eq!(results[6]["messages"][0]["text"], "Go on");
    assert_eq!(results[7], json!({"left": scene.space}));
    assert_eq!(results[8]["error"], "you are not in a space; call enter_space first");
    let messages = scene.world.messages(&scene.space).await;
    let texts: Vec<_> = messages.iter().map(|message| text(message, "text")).collect();
    assert_eq!(texts, ["Go on", "Hello"]);
    assert_eq!(messages[1]["author"]["name"], "Assistant");
}

#[tokio::test(flavor = "multi_thread")]
async fn goals_memories_and_plans_are_kept_for_later_cycles() {
    let scene = Scene::new(json!([])).await;
    let results = scene
        .results(
            1,
            [
                calls(&[(
                    "set_goals",
                    json!({"goals": [{"text": "Learn Go"}, {"id": "g", "text": "Rest"}]}),
                )]),
                calls(&[("set_memories", json!({"memories": [{"id": "m", "text": "Ada likes tea"}]}))]),
                calls(&[(
                    "set_plans",
                    json!({"plans": [{"id": "p", "text": "Water", "at": "2099-01-01T00:00:00Z"}]}),
                )]),
                calls(&[("set_plans", json!({"plans": [{"text": "x", "at": "tomorrow"}]}))]),
                calls(&[("delete_goals", json!({"ids": ["g", "unknown"]}))]),
                calls(&[("get_plans", json!({}))]),
                says("Noted."),
            ],
        )
        .await;
    assert_eq!(results[0]["goals"][1], json!({"id": "g"}));
    assert!(text(&results[3], "error").contains("plans[0].at is not a time in RFC 3339"), "{}", results[3]);
    assert_eq!(results[4], json!({"deleted": 1}));
    assert_eq!(
        results[5],
        json!({"plans": [{"id": "p", "text": "Water", "due": "2099-01-01T00:00:00.000Z"}]})
    );
    scene.results(2, [says("Yes.")]).await;
    let requests = scene.world.script.requests.lock().expect("not poisoned");
    let instructions = requests.last().expect("a request").messages[0].text();
    for kept in ["Learn Go", "Ada likes tea", "Water"] {
        assert!(instructions.contains(kept), "{instructions}");
    }
    assert!(!instructions.contains("Rest"), "{instructions}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_plan_that_is_due_wakes_its_agent() {
    let scene = Scene::new(json!([])).await;
    let plan = json!({"plans": [{"id": "p", "text": "Water the plants", "at": "2001-01-01T00:00:00Z"}]});
    scene.world.plays([calls(&[("set_plans", plan)]), says("Planned."), says("Watered.")]);
    scene.world.say(&scene.token, &scene.space, "Plan it").await;
    scene.world.ended_runs(&scene.agent, 2).await;
    let prompts = scene.world.prompts();
    let expected = "[Plan: \"Water the plants\"] (planId: p, due: 2001-01-01T00:00:00.000Z)";
    assert_eq!(prompts.last().map(String::as_str), Some(expected));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_later_cycle_knows_the_earlier_ones() {
    let scene = Scene::new(json!([])).await;
    scene.results(1, [says("I know it now.")]).await;
    scene.results(2, [says("Still.")]).await;
    let requests = scene.world.script.requests.lock().expect("not poisoned");
    let texts: Vec<_> = requests.last().expect("a request").messages[1..]
        .iter()
        .map(portcullis_types::Message::text)
        .collect();
    assert_eq!(texts.len(), 3, "{texts:?}");
    assert_eq!(texts[1], "I know it now.");
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_wake_each_other_but_not_without_end() {
    let count = texts_of_a_talk(json!([]), &[]).await;
    assert!((21..60).contains(&count), "{count}");
}

/// Calls of visible tools come between the texts, and are messages too.
#[tokio::test(flavor = "multi_thread")]
async fn agents_that_show_calls_do_not_wake_each_other_without_end() {
    let chart = tool("displayChart", "internal", json!({"visible": true}));
    let count = texts_of_a_talk(json!([chart]), &[("displayChart", json!({}))]).await;
    assert!((21..60).contains(&count), "{count}");
}

/// Lets two agents with these tools answer every message, and returns the number of texts when they have
/// stopped.
async fn texts_of_a_talk(tools: Value, shown: &[(&str, Value)]) -> usize {
    let world = World::new().await;
    let (ping, pong) = (world.agent("Ping", tools.clone()).await, world.agent("Pong", tools).await);
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Table", &[&ada, &ping, &pong]).await;
    // Both agents answer every message, forever.
    let mut turn = vec![("enter_space", json!({"spaceId": space}))];
    turn.extend(shown.iter().cloned());
    turn.push(("send_message", json!({"text": "And you?"})));
    world.plays((0..200).flat_map(|_| [calls(&turn), says("Sent.")]));
    world.say(&token, &space, "Talk to each other").await;
    let path = format!("/api/spaces/{space}/messages?limit=1000");
    let mut last = 0;
    world
        .until("an end of the talk", async || {
            let idle = items(&world.ok(&world.admin, "GET", "/api/agents", None).await);
            let is_idle = idle.iter().all(|agent| agent["status"] == "idle");
            let messages = items(&world.ok(&world.admin, "GET", &path, None).await);
            let count = messages.iter().filter(|message| message["kind"] == "text").count();
            let is_over = is_idle && count == last && count > 20;
            last = count;
            tokio::time::sleep(std::time::Duration::from_millis(700)).await;
            is_over.then_some(count)
        })
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_visible_call_wakes_no_other_agent() {
    let world = World::new().await;
    let chart = tool("displayChart", "internal", json!({"visible": true}));
    let (shower, watcher) =
        (world.agent("Shower", json!([chart])).await, world.agent("Watcher", json!([])).await);
    let (ada, token) = world.user("Ada").await;
    let space = world.space("Table", &[&ada, &shower]).await;
    world.plays([
        calls(&[("enter_space", json!({"spaceId": space})), ("displayChart", json!({}))]),
        says("Shown."),
    ]);
    world.say(&token, &space, "Show it").await;
    world.ended_runs(&shower, 1).await;
    world.ok(&world.admin, "PUT", &format!("/api/spaces/{space}/members/{watcher}"), None).await;
    let inbox = world.ok(&world.admin, "GET", &format!("/api/agents/{watcher}/inbox"), None).await;
    assert_eq!(inbox["items"], json!([]));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_its_rows_and_steps() {
    let scene = Scene::new(json!([])).await;
    scene.results(1, [calls(&[("skip", json!({"reason": "nothing"}))]), says("Skipped.")]).await;
    let run = text(&scene.world.ended_runs(&scene.agent, 1).await[0], "id");
    let details = scene.world.ok(&scene.token, "GET", &format!("/api/runs/{run}"), None).await;
    assert_eq!(details["status"], "completed");
    let kinds: Vec<_> =
        details["steps"].as_array().expect("steps").iter().map(|step| text(step, "kind")).collect();
    assert_eq!(kinds, ["setup", "call_model", "run_tools", "call_model", "finalize"]);
    let rows = items(&scene.world.ok(&scene.token, "GET", &format!("/api/runs/{run}/rows"), None).await);
    assert!(rows.iter().any(|row| row["tool"] == "skip" && row["outcome"] == "ok"), "{rows:?}");
    assert!(rows.iter().filter(|row| row["event"] == "model").count() == 2, "{rows:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_with_capabilities_has_their_tools_and_its_own_alone() {
    let scene = Scene::new(json!([])).await;
    let path = format!("/api/agents/{}", scene.agent);
    let definition = json!({
        "name": "Assistant",
        "capabilities": ["CurrentTime"],
        "tools": [tool("note", "internal", json!({}))],
    });
    scene.world.ok(&scene.world.admin, "PUT", &path, Some(definition)).await;
    scene.results(1, [says("Fine.")]).await;
    let requests = scene.world.script.requests.lock().expect("not poisoned");
    let names: Vec<_> = requests[0].tools.iter().map(|tool| tool.name.as_str()).collect();
    for has in ["note", "enter_space", "get_current_time"] {
        assert!(names.contains(&has), "{has}: {names:?}");
    }
    for lacks in ["echo", "output_read"] {
        assert!(!names.contains(&lacks), "{lacks}: {names:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_space_gets_nothing_from_an_agent_removed_during_a_call() {
    let world = World::new().await;
    let confirm = tool("confirmAction", "space", json!({"timeout": 600_000}));
    let agent = world.agent("Assistant", json!([confirm])).await;
    let (token, space) = world.meet(&agent).await;
    world.plays([
        calls(&[("enter_space", json!({"spaceId": space}))]),
        calls(&[("confirmAction", json!({}))]),
        calls(&[("send_message", json!({"text": "afterwards"}))]),
        says("Done."),
    ]);
    world.say(&token, &space, "Go").await;
    let call = world.a_call("waiting").await;
    world.ok(&world.admin, "DELETE", &format!("/api/spaces/{space}/members/{agent}"), None).await;
    assert_eq!(world.submit(&world.admin, &call, json!({"confirmed": true})).await.0.as_u16(), 200);
    world.ended_runs(&agent, 1).await;
    let results = world.tool_results();
    assert!(results[1].contains("confirmed"), "the run has its result: {results:?}");
    assert!(results[2].contains("error"), "{results:?}");
    let messages = world.messages(&space).await;
    assert!(messages.iter().all(|message| message["text"] != "afterwards"), "{messages:?}");
}
