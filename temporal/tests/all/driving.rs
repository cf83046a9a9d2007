//! Runs that end as they would in a single process.

use portcullis_agent::AgentEnd;

use crate::{
    scripts::{LONG, WORK, WRONG},
    server::Server,
    world::{World, wait_for_some},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_run_has_the_history_of_one_process() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    for prompt in [WORK, WRONG] {
        let (here, id) = world.drive_here(prompt, None).await;
        assert_eq!(here.end, AgentEnd::Answer { text: "Done.".to_owned() });
        let (outcome, _) = world.drive(prompt, prompt).await;
        assert_eq!((&*outcome.status, outcome.unread.len()), ("completed", 0));
        assert_eq!(world.export(&outcome.run).await, world.export(id.as_str()).await, "{prompt}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_model_call_and_each_tool_call_is_an_activity() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let (outcome, handle) = world.drive("work", WORK).await;
    assert_eq!(outcome.status, "completed");
    let expected = [
        "setup",
        "call_model",
        "run_tool",
        "run_tool",
        "run_tool",
        "finish_turn",
        "call_model",
        "run_tool",
        "run_tool",
        "finish_turn",
        "call_model",
        "finalize",
    ];
    assert_eq!(world.activities(&handle).await, expected);
    // This is the output of the server's own command line.
    let shown = world.server.command_line(&["workflow", "show", "--workflow-id", "work", "--output", "json"]);
    assert_eq!(shown.matches("\"name\": \"call_model\"").count(), 3, "{shown}");
    assert_eq!(shown.matches("\"name\": \"run_tool\"").count(), 5, "{shown}");
    for query in [format!("PortcullisRun = '{}'", outcome.run), "PortcullisStatus = 'completed'".to_owned()] {
        // The index lags behind the history.
        let list = || world.server.command_line(&["workflow", "list", "--query", &query]);
        wait_for_some(async || list().contains("work").then_some(())).await;
    }
}

/// The server suggests this for histories of several thousand events. Here it does so for short ones.
#[tokio::test(flavor = "multi_thread")]
async fn a_long_run_continues_as_a_new_workflow() {
    let option = ["--dynamic-config-value", "limit.historyCount.suggestContinueAsNew=40"];
    let Some(server) = Server::start_with(&option) else { return };
    let world = World::with(server).await.expect("a world");
    let _worker = world.worker();
    let (outcome, handle) = world.drive("long", LONG).await;
    assert_eq!(outcome.status, "completed");
    let shown =
        world.server.command_line(&["workflow", "list", "--query", "ExecutionStatus = 'ContinuedAsNew'"]);
    assert!(shown.contains("long"), "{shown}");
    assert!(world.history(&handle).await.len() < 100, "the last workflow has a part of the history");
    let (_, here) = world.drive_here(LONG, None).await;
    assert_eq!(world.export(&outcome.run).await, world.export(here.as_str()).await);
}
