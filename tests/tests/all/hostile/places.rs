//! The limit on concurrent calls.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, World};
use portcullis_types::{FunctionDecl, JsonSchema, SafetyTier, Tool, ToolError};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{Trial, entry};

/// Counts its concurrent calls. No call ends before it has a permit to leave.
struct Crowd {
    inside: AtomicUsize,
    most: Arc<AtomicUsize>,
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

#[async_trait]
impl Tool for Crowd {
    fn schema(&self) -> FunctionDecl {
        FunctionDecl { name: "crowd".into(), description: None, parameters: JsonSchema::empty_object() }
    }

    async fn execute(&self, _: &str) -> Result<String, ToolError> {
        let inside = self.inside.fetch_add(1, Ordering::SeqCst) + 1;
        self.most.fetch_max(inside, Ordering::SeqCst);
        self.entered.add_permits(1);
        self.leave.acquire().await.expect("open").forget();
        self.inside.fetch_sub(1, Ordering::SeqCst);
        Ok("left".to_owned())
    }

    fn timeout(&self) -> Duration {
        Duration::from_secs(60)
    }

    fn safety_tier(&self) -> SafetyTier {
        SafetyTier::ReadOnly
    }
}

#[tokio::test]
async fn a_hundred_parallel_calls_share_ten_places() {
    let world = World::new().with_policy("[tools.crowd]\nenabled = true\n");
    let [entered, leave] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let most = Arc::new(AtomicUsize::new(0));
    let crowd = Crowd {
        inside: AtomicUsize::new(0),
        most: Arc::clone(&most),
        entered: Arc::clone(&entered),
        leave: Arc::clone(&leave),
    };
    let registry = world.builder().await.expect("bootstraps").tool(crowd).build().expect("builds");
    let calls = join_all((0..100).map(|_| CallOutcome::of(&registry, "crowd", json!({}))));
    let doorkeeper = async {
        // All slots are taken before any call leaves; then each call that leaves lets one in.
        entered.acquire_many(10).await.expect("open").forget();
        leave.add_permits(100);
    };
    let (answers, ()) = tokio::join!(calls, doorkeeper);
    for answer in answers {
        assert_eq!(answer.text(), "left");
    }
    assert_eq!(most.load(Ordering::SeqCst), 10);
    assert_eq!(world.rows().len(), 100);
}

#[tokio::test]
async fn a_hundred_guests_that_loop_are_all_stopped_in_their_turn() {
    let trial = Trial::with("loop_forever", "Nothing", "100ms").await;
    for answer in join_all((0..100).map(|_| trial.call(json!({})))).await {
        answer.refused(portcullis_types::ToolErrorKind::Timeout, "timeout");
    }
    trial.others_go_on().await;
}

#[tokio::test]
async fn guests_of_all_mount_sets_run_beside_each_other() {
    let world = World::new().with_policy(&entry("loop_forever", "Nothing", "1s"));
    let trial = Trial::within(world, "loop_forever").await;
    let loops = join_all((0..9).map(|_| trial.call(json!({}))));
    let reads = async {
        for _ in 0..20 {
            trial.others_go_on().await;
        }
    };
    let (answers, ()) = tokio::join!(loops, reads);
    for answer in answers {
        answer.refused(portcullis_types::ToolErrorKind::Timeout, "timeout");
    }
}
