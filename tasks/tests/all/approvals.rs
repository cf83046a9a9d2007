//! Calls that need an approval wait in a folder, and run when a person has moved their task.

use std::sync::Arc;

use portcullis_tasks::ReportedStatus;

use crate::world::{Runner, World, call};

fn asking() -> Arc<Runner> {
    Arc::new(Runner { asks: ["pay"].into(), ..Runner::echo() })
}

#[tokio::test]
async fn a_call_waits_and_later_calls_do_not_overtake_it() {
    let world = World::new();
    world.write("01_Inbox/a.md", &[call("a", "1"), call("pay", "2"), call("a", "3")].concat());
    let runner = asking();
    let reports = world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1"]);
    assert_eq!(reports[0].calls[1].status, ReportedStatus::NeedsApproval);
    let text = world.read("03_Pending_Approval/a.md");
    assert!(text.contains("\"question\":\"may \\u0060pay\\u0060 run?\""), "{text}");
    // Without a person, nothing more happens.
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1"]);
    world.moved("03_Pending_Approval/a.md", "04_Approved/a.md");
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1", "pay 2", "a 3"]);
    assert!(world.has("07_Done/a.md"));
    assert!(!world.read("07_Done/a.md").contains("question"));
}

#[tokio::test]
async fn an_approval_is_for_the_call_that_was_asked_about() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("pay", "2"));
    let runner = asking();
    world.run(&runner).await;
    // The call is changed after the question, and then the file is moved.
    let changed = world.read("03_Pending_Approval/a.md").replace("\"text\":\"2\"", "\"text\":\"2000\"");
    world.moved("03_Pending_Approval/a.md", "04_Approved/a.md");
    world.write("04_Approved/a.md", &changed);
    world.run(&runner).await;
    assert!(runner.effects().is_empty());
    assert!(world.read("03_Pending_Approval/a.md").contains("2000"), "the question is asked again");
}

#[tokio::test]
async fn a_new_task_in_the_folder_of_approved_tasks_is_not_approved() {
    let world = World::new();
    world.write("04_Approved/a.md", &call("pay", "2"));
    let runner = asking();
    world.run(&runner).await;
    assert!(runner.effects().is_empty());
    assert!(world.has("03_Pending_Approval/a.md"));
}

#[tokio::test]
async fn a_waiting_task_that_is_moved_back_waits_again() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("pay", "2"));
    let runner = asking();
    world.run(&runner).await;
    world.moved("03_Pending_Approval/a.md", "01_Inbox/a.md");
    world.run(&runner).await;
    assert!(runner.effects().is_empty());
    assert!(world.has("03_Pending_Approval/a.md"));
    assert_eq!(runner.seen.lock().expect("no panic").len(), 1, "it is asked once");
}
