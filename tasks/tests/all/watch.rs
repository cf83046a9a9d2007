//! Tests of waiting for changed files.

use std::sync::Arc;

use portcullis_types::CancellationToken;
use tokio::sync::mpsc;

use crate::world::{Runner, World, call};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn files_that_come_and_change_are_processed_until_the_end() {
    let world = World::new();
    world.write("01_Inbox/first.md", &call("a", "1"));
    let runner = Arc::new(Runner::echo());
    let processor = world.processor(&runner);
    let (cancel, (sender, mut reports)) = (CancellationToken::new(), mpsc::unbounded_channel());
    let watching = processor.watch(&cancel, move |report| drop(sender.send(report)));
    let acting = async {
        assert_eq!(reports.recv().await.expect("a report").name, "first.md");
        world.write("01_Inbox/second.md", &call("a", "2"));
        assert_eq!(reports.recv().await.expect("a report").name, "second.md");
        // A person corrects a finished task, and saves it as editors do.
        let text = world.read("07_Done/first.md");
        world.write("elsewhere.md", &format!("{text}{}", call("a", "3")));
        world.moved("elsewhere.md", "01_Inbox/first.md");
        assert_eq!(reports.recv().await.expect("a report").name, "first.md");
        cancel.cancel();
    };
    let (watched, ()) = tokio::join!(watching, acting);
    watched.expect("watches");
    assert_eq!(runner.effects(), ["a 1", "a 2", "a 3"]);
}
