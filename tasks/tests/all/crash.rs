//! A process dies at any moment, and another continues. No call has a second effect.

use std::sync::Arc;

use portcullis_tasks::limits::MAX_ATTEMPTS;

use crate::world::{Death, Runner, World, call};

fn dying(death: Death, may_repeat: bool) -> Arc<Runner> {
    Arc::new(Runner { death: Some(death), may_repeat, ..Runner::echo() })
}

#[tokio::test(start_paused = true)]
async fn a_call_that_had_not_begun_runs() {
    let world = World::new();
    world.write("01_Inbox/a.md", &format!("{}{}", call("a", "1"), call("a", "2")));
    let dead = dying(Death::BeforeBegin, false);
    world.run_and_die(&dead).await;
    assert_eq!(world.read("01_Inbox/a.md"), format!("{}{}", call("a", "1"), call("a", "2")));
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    assert_eq!((dead.effects(), runner.effects()), (vec![], vec!["a 1".to_owned(), "a 2".to_owned()]));
    assert!(world.has("07_Done/a.md"));
}

#[tokio::test(start_paused = true)]
async fn a_begun_call_is_reported_as_interrupted_and_not_repeated() {
    for death in [Death::AfterBegin, Death::AfterEffect] {
        let world = World::new();
        world.write("01_Inbox/a.md", &format!("{}{}", call("a", "1"), call("a", "2")));
        let dead = dying(death, false);
        world.run_and_die(&dead).await;
        assert!(world.read("01_Inbox/a.md").contains("\"status\":\"pending\""));
        let runner = Arc::new(Runner::echo());
        world.run(&runner).await;
        world.run(&runner).await;
        assert_eq!(runner.effects(), ["a 2"], "the first call is not repeated after {death:?}");
        assert!(dead.effects().len() <= 1);
        let text = world.read("02_Needs_Action/a.md");
        assert!(text.contains("its effects are not known"), "{text}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_may_be_repeated_is_repeated_a_few_times() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    for attempt in 0..MAX_ATTEMPTS {
        let dead = dying(Death::AfterBegin, true);
        world.run_and_die(&dead).await;
        assert_eq!(dead.seen.lock().expect("no panic").len(), 1, "attempt {attempt}");
    }
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    assert!(runner.effects().is_empty());
    assert!(world.has("02_Needs_Action/a.md"));
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_call_that_may_be_repeated_ends_normally() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    world.run_and_die(&dying(Death::AfterEffect, true)).await;
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1"]);
    assert!(world.read("07_Done/a.md").contains("\"attempts\":2"));
}

#[tokio::test]
async fn a_finished_task_that_was_not_moved_is_moved() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    let runner = Arc::new(Runner::echo());
    world.run(&runner).await;
    // This is the state after a death between the last row and the move.
    world.moved("07_Done/a.md", "01_Inbox/a.md");
    let reports = world.run(&runner).await;
    assert_eq!(reports[0].moved_to.as_deref(), Some("07_Done"));
    assert_eq!(runner.effects(), ["a 1"]);
}
