//! The kinds of failures that are retried, and the data that stay out of Temporal.

use portcullis_runs::store::RunStatus;
use temporalio_common::protos::temporal::api::history::v1::history_event::Attributes;

use crate::{
    scripts::{FAILING, LARGE},
    server::Server,
    world::World,
};

/// Returns the number of attempts at the last activity of this type.
async fn attempts(world: &World, handle: &crate::world::Handle) -> i32 {
    let started = |attributes| match attributes {
        Attributes::ActivityTaskStartedEventAttributes(started) => Some(started.attempt),
        _ => None,
    };
    let events = world.history(handle).await;
    events.into_iter().filter_map(|event| event.attributes.and_then(started)).max().expect("an activity")
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failed_model_is_asked_again_with_one_stored_prompt() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let (outcome, handle) = world.drive("fails", &format!("{FAILING}server 2")).await;
    assert_eq!((&*outcome.status, attempts(&world, &handle).await), ("completed", 3));
    assert_eq!(world.activities(&handle).await, ["setup", "call_model", "finalize"]);
    let run = world.store.run(&outcome.run).await.expect("the store has the run").summary;
    assert_eq!((run.messages, run.steps), (2, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_that_no_attempt_can_cure_ends_the_run() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let prompt = format!("{FAILING}key 9");
    let (outcome, handle) = world.drive("fails", &prompt).await;
    assert_eq!((&*outcome.status, attempts(&world, &handle).await), ("failed", 1));
    let (_, id) = world.drive_here(&prompt, None).await;
    assert_eq!(world.export(&outcome.run).await, world.export(id.as_str()).await);
}

/// The pauses between the attempts are timers of the server, more than a minute in total.
#[tokio::test(flavor = "multi_thread")]
async fn a_rate_limited_provider_is_left_alone_for_a_while() {
    let Some(server) = Server::start_skipping_time() else { return };
    let world = World::with(server).await.expect("a world");
    let _worker = world.worker();
    let (outcome, handle) = world.drive("fails", &format!("{FAILING}rate 4")).await;
    assert_eq!((&*outcome.status, attempts(&world, &handle).await), ("completed", 5));
    let events = world.history(&handle).await;
    let seconds = |event: Option<&temporalio_common::protos::temporal::api::history::v1::HistoryEvent>| {
        event.and_then(|event| event.event_time).expect("a time").seconds
    };
    assert!(seconds(events.last()) - seconds(events.first()) >= 60, "the pauses are those of the kind");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_large_result_stays_in_the_store() {
    let Some(world) = World::new().await else { return };
    let _worker = world.worker();
    let (outcome, handle) = world.drive("large", LARGE).await;
    assert_eq!(outcome.status, "completed");
    assert!(world.export(&outcome.run).await.len() > 1 << 14, "the result is stored");
    let shown =
        world.server.command_line(&["workflow", "show", "--workflow-id", "large", "--output", "json"]);
    assert!(!shown.contains("xxxxxxxx"), "Temporal has no result");
    let events = world.history(&handle).await;
    let largest = events.iter().map(prost_size).max().expect("an event");
    assert!(largest < 4096, "{largest}");
    assert_eq!(
        world.store.run(&outcome.run).await.expect("the store has the run").summary.status,
        RunStatus::Completed
    );
}

/// Returns the size of an event as the server stores it.
fn prost_size(event: &temporalio_common::protos::temporal::api::history::v1::HistoryEvent) -> usize {
    format!("{event:?}").len()
}
