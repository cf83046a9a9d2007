//! Tools that other workers run.

use crate::{
    scripts::WORK,
    tools::{ALL, notes},
    world::{QUEUE, World},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_placed_tool_runs_on_the_workers_of_its_queue() {
    let Some(world) = World::new().await else { return };
    let _models = world.worker_with(QUEUE, &ALL, &["note=writers"]);
    let _writers = world.worker_with("writers", &["note"], &[]);
    let (outcome, handle) = world.drive("work", WORK).await;
    assert_eq!((&*outcome.status, notes(world.folder()).len()), ("completed", 5));
    let events = world.history(&handle).await;
    let writers = format!("{events:?}").matches("name: \"writers\"").count();
    assert_eq!(writers, 3, "each call of `note` was placed");
    let (_, here) = world.drive_here(WORK, None).await;
    assert_eq!(world.export(&outcome.run).await, world.export(here.as_str()).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_learns_that_no_worker_has_the_tool() {
    let Some(world) = World::new().await else { return };
    let _models = world.worker_with(QUEUE, &ALL, &["note=readers"]);
    let _readers = world.worker_with("readers", &["look"], &[]);
    let (outcome, handle) = world.drive("work", WORK).await;
    assert_eq!(outcome.status, "completed");
    let notes = notes(world.folder());
    assert!(notes.iter().all(|note| note.contains(" look ")), "{notes:?}");
    let export = world.export(&outcome.run).await;
    assert_eq!(export.matches("no process could run the call, so it was not run").count(), 3, "{export}");
    let failures = format!("{:?}", world.history(&handle).await);
    assert!(
        failures.contains("no worker of the task queue `readers` that was tried has the tool `note`"),
        "{failures}"
    );
}
