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
use portcullis_testing::{CallOutcome, Fixture};
use portcullis_types::{FunctionDecl, JsonSchema, SafetyTier, Tool, ToolError};
use serde_json::json;
use tokio::sync::Semaphore;

use super::{Trial, entry};

/// Counts its concurrent calls. A call ends only when it gets a permit of `leave`.
struct CountingTool {
    active_calls: AtomicUsize,
    peak_calls: Arc<AtomicUsize>,
    entered: Arc<Semaphore>,
    leave: Arc<Semaphore>,
}

#[async_trait]
impl Tool for CountingTool {
    fn schema(&self) -> FunctionDecl {
        FunctionDecl { name: "crowd".into(), description: None, parameters: JsonSchema::empty_object() }
    }

    async fn execute(&self, _: &str) -> Result<String, ToolError> {
        let active_calls = self.active_calls.fetch_add(1, Ordering::SeqCst) + 1;
        self.peak_calls.fetch_max(active_calls, Ordering::SeqCst);
        self.entered.add_permits(1);
        self.leave.acquire().await.expect("open").forget();
        self.active_calls.fetch_sub(1, Ordering::SeqCst);
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
    let fixture = Fixture::new().with_policy("[tools.crowd]\nenabled = true\n");
    let [entered, leave] = [(); 2].map(|()| Arc::new(Semaphore::new(0)));
    let peak_calls = Arc::new(AtomicUsize::new(0));
    let crowd = CountingTool {
        active_calls: AtomicUsize::new(0),
        peak_calls: Arc::clone(&peak_calls),
        entered: Arc::clone(&entered),
        leave: Arc::clone(&leave),
    };
    let registry = fixture.builder().await.expect("bootstraps").tool(crowd).build().expect("builds");
    let calls = join_all((0..100).map(|_| CallOutcome::run(&registry, "crowd", json!({}))));
    let release_calls = async {
        // First all slots are taken, and no call ends. Then each call that ends frees a slot for another.
        entered.acquire_many(10).await.expect("open").forget();
        leave.add_permits(100);
    };
    let (answers, ()) = tokio::join!(calls, release_calls);
    for answer in answers {
        assert_eq!(answer.text(), "left");
    }
    assert_eq!(peak_calls.load(Ordering::SeqCst), 10);
    assert_eq!(fixture.rows().len(), 100);
}

#[tokio::test]
async fn a_hundred_guests_that_loop_are_all_stopped_in_their_turn() {
    let trial = Trial::with_profile("loop_forever", "Nothing", "100ms").await;
    for answer in join_all((0..100).map(|_| trial.call(json!({})))).await {
        answer.assert_refused(portcullis_types::ToolErrorKind::Timeout, "timeout");
    }
    trial.assert_others_are_served().await;
}

#[tokio::test]
async fn guests_of_all_mount_sets_run_beside_each_other() {
    let fixture = Fixture::new().with_policy(&entry("loop_forever", "Nothing", "1s"));
    let trial = Trial::in_fixture(fixture, "loop_forever").await;
    let loops = join_all((0..9).map(|_| trial.call(json!({}))));
    let reads = async {
        for _ in 0..20 {
            trial.assert_others_are_served().await;
        }
    };
    let (answers, ()) = tokio::join!(loops, reads);
    for answer in answers {
        answer.assert_refused(portcullis_types::ToolErrorKind::Timeout, "timeout");
    }
}
