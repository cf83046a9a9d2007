//! Files that others edit, move or remove while their calls run.

use std::{fs, sync::Arc};

use portcullis_tasks::{FileError, TaskFolderError, TaskProcessor, TaskStates};
use portcullis_types::ToolOutput;

use crate::world::{Runner, World, call};

/// Creates a runner that changes the folder during its first call.
fn during_first_call(
    world: &World,
    action: impl Fn(&std::path::Path) + Send + Sync + 'static,
) -> Arc<Runner> {
    let root = world.dir.path().to_owned();
    let once = std::sync::Once::new();
    Arc::new(Runner::new(move |_call| {
        once.call_once(|| action(&root));
        Ok(ToolOutput::text("done"))
    }))
}

#[tokio::test]
async fn an_edit_during_a_call_is_kept_and_its_calls_run() {
    let world = World::new();
    world.write("01_Inbox/a.md", &format!("{}\n{}", call("a", "1"), call("a", "2")));
    let runner = during_first_call(&world, |root| {
        let path = root.join("01_Inbox/a.md");
        let text = fs::read_to_string(&path).expect("reads").replacen(&call("a", "2"), &call("a", "3"), 1);
        fs::write(&path, format!("{text}\nA note.\n")).expect("writes");
    });
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 1", "a 3"]);
    let text = world.read("07_Done/a.md");
    assert!(text.contains("A note."), "{text}");
    assert_eq!(text.matches("````tool-result").count(), 2, "{text}");
}

#[tokio::test]
async fn a_block_that_is_removed_during_its_call_keeps_its_row() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    let runner = during_first_call(&world, |root| {
        let path = root.join("01_Inbox/a.md");
        let text = fs::read_to_string(&path).expect("reads").replacen(&call("a", "1"), "gone\n", 1);
        fs::write(&path, text).expect("writes");
    });
    world.run(&runner).await;
    let text = world.read("01_Inbox/a.md");
    assert!(text.contains("\"status\":\"success\"") && text.ends_with("gone\n"), "{text}");
}

#[tokio::test]
async fn a_file_that_is_moved_during_a_call_gets_its_result_there() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    let runner = during_first_call(&world, |root| {
        fs::rename(root.join("01_Inbox/a.md"), root.join("06_Reviewing/a.md")).expect("moves");
    });
    let reports = world.run(&runner).await;
    assert!(world.read("06_Reviewing/a.md").contains("````tool-result"));
    assert!(matches!(reports[0].error, Some(FileError::Gone)), "{reports:?}");
}

#[tokio::test]
async fn a_file_that_is_removed_or_broken_during_a_call_is_reported() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    let runner =
        during_first_call(&world, |root| fs::remove_file(root.join("01_Inbox/a.md")).expect("removes"));
    let reports = world.run(&runner).await;
    assert!(matches!(reports[0].error, Some(FileError::Gone)), "{reports:?}");
    world.write("01_Inbox/b.md", &call("a", "1"));
    let runner = during_first_call(&world, |root| {
        fs::write(root.join("01_Inbox/b.md"), format!("---\n[\n---\n{}", call("a", "1"))).expect("writes");
    });
    let reports = world.run(&runner).await;
    assert!(matches!(reports[0].error, Some(FileError::FrontMatterSyntax(_))), "{reports:?}");
    assert_eq!(world.read("01_Inbox/b.md"), format!("---\n[\n---\n{}", call("a", "1")));
}

#[tokio::test]
async fn two_processors_cannot_work_on_one_folder() {
    let world = World::new();
    let runner = Arc::new(Runner::echo());
    let first = world.processor(&runner);
    let second = TaskProcessor::open(world.dir.path(), TaskStates::default(), Arc::clone(&runner) as _);
    assert!(matches!(second, Err(TaskFolderError::Busy { .. })));
    drop(first);
    world.processor(&runner);
}

#[tokio::test]
async fn a_block_that_is_changed_before_its_call_begins_does_not_run() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    let root = world.dir.path().to_owned();
    let once = std::sync::Once::new();
    let runner = Arc::new(Runner {
        before_begin: Some(Box::new(move || {
            once.call_once(|| fs::write(root.join("01_Inbox/a.md"), call("a", "2")).expect("writes"));
        })),
        ..Runner::echo()
    });
    world.run(&runner).await;
    assert_eq!(runner.effects(), ["a 2"]);
    let text = world.read("07_Done/a.md");
    assert_eq!(text.matches("\"block\"").count(), 1, "the changed block left no row: {text}");
}

#[tokio::test]
async fn a_call_that_another_process_has_begun_does_not_run() {
    let world = World::new();
    world.write("01_Inbox/a.md", &call("a", "1"));
    let root = world.dir.path().to_owned();
    let begun = {
        let other = World::new();
        other.write("01_Inbox/a.md", &call("a", "1"));
        let runner = Arc::new(Runner::echo());
        other.run(&runner).await;
        other.read("07_Done/a.md").replace("\"status\":\"success\"", "\"status\":\"pending\"")
    };
    let text = begun.clone();
    let runner = Arc::new(Runner {
        before_begin: Some(Box::new(move || fs::write(root.join("01_Inbox/a.md"), &text).expect("writes"))),
        ..Runner::echo()
    });
    let reports = world.run(&runner).await;
    assert!(runner.effects().is_empty());
    assert!(matches!(reports[0].error, Some(FileError::BegunElsewhere)), "{reports:?}");
    assert_eq!(world.read("01_Inbox/a.md"), begun, "the other process keeps its row");
}
