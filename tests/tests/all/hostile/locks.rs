//! Locks of paths: they exclude the calls of all processes, and are released however a guest ends.

use std::{
    fs,
    os::unix::fs::symlink,
    sync::Arc,
    time::{Duration, Instant},
};

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, Fixture, TEST_TIMEOUT, approving_caller};
use portcullis_tools::{ToolRegistry, new_call};
use portcullis_types::ToolErrorKind;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::{Trial, entry};

const COUNT: &str = "/shared/count";

async fn call(registry: &ToolRegistry, arguments: Value) -> CallOutcome {
    let answer = tokio::time::timeout(TEST_TIMEOUT, CallOutcome::run(registry, "lock_path", arguments)).await;
    answer.expect("the call ends by itself")
}

async fn trial(timeout: &str) -> Trial {
    Trial::with_profile("lock_path", "FileReadWrite", timeout).await
}

/// Counts the lock files that are left in the state folder.
fn files_left(fixture: &Fixture) -> usize {
    fs::read_dir(fixture.state().join("locks")).expect("was made").count()
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_calls_of_two_processes_lose_no_write() {
    const CALLS: usize = 10;
    let trial = trial("60s").await;
    // A second registry behaves as one in another process: it does not wait for the calls of the first.
    let other = trial.fixture.registry_with(&["lock_path"]).await;
    let calls = (0..CALLS).flat_map(|_| [&trial.registry, &other]);
    let calls = calls.map(|registry| call(registry, json!({"path": COUNT})));
    for answer in join_all(calls).await {
        answer.0.into_result().expect("each has its turn");
    }
    let count = fs::read_to_string(trial.fixture.shared("count")).expect("readable");
    assert_eq!(count, (2 * CALLS).to_string());
    assert_eq!(files_left(&trial.fixture), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lock_ends_with_its_call_however_the_call_ends() {
    let trial = trial("2s").await;
    let other = trial.fixture.registry_with(&["lock_path"]).await;
    for (number, then) in (1..).zip(["forget", "panic", "loop"]) {
        let answer = call(&trial.registry, json!({"path": COUNT, "then": then})).await;
        assert_eq!(answer.0.outcome.is_output(), then == "forget", "{then}");
        let counted = call(&other, json!({"path": COUNT})).await;
        assert_eq!(counted.text(), number.to_string(), "{then}");
    }
    assert_eq!(files_left(&trial.fixture), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancelled_call_gives_its_lock_back() {
    let trial = trial("60s").await;
    let mut caller = approving_caller();
    let cancel = caller.cancel.clone();
    caller.on_progress = Some(Arc::new(move |_locked| cancel.cancel()));
    let arguments = json!({"path": COUNT, "then": "loop"}).to_string();
    let result = trial.registry.execute_with_policy(new_call("lock_path", arguments), &caller).await;
    CallOutcome(result).assert_refused(ToolErrorKind::Cancelled, "cancelled");
    assert_eq!(call(&trial.registry, json!({"path": COUNT})).await.text(), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_wait_for_a_lock_ends_with_the_time_of_the_call() {
    let trial = trial("60s").await;
    let other = trial.fixture.registry_with(&["lock_path"]).await;
    let is_locked = Arc::new(Semaphore::new(0));
    let mut holder = approving_caller();
    let signal = Arc::clone(&is_locked);
    holder.on_progress = Some(Arc::new(move |_locked| signal.add_permits(1)));
    let arguments = json!({"path": COUNT, "then": "loop"}).to_string();
    let hold = trial.registry.execute_with_policy(new_call("lock_path", arguments), &holder);
    let wait = async {
        is_locked.acquire().await.expect("open").forget();
        let mut hurried = approving_caller();
        hurried.turn_deadline = Some(Instant::now() + Duration::from_millis(500));
        let arguments = json!({"path": COUNT}).to_string();
        let result = other.execute_with_policy(new_call("lock_path", arguments), &hurried).await;
        holder.cancel.cancel();
        result
    };
    let (held, waited) = tokio::join!(hold, wait);
    CallOutcome(waited).assert_refused(ToolErrorKind::Timeout, "timeout");
    CallOutcome(held).assert_refused(ToolErrorKind::Cancelled, "cancelled");
    assert_eq!(call(&other, json!({"path": COUNT})).await.text(), "1");
}

#[tokio::test]
async fn a_call_never_waits_for_its_own_lock_and_takes_few() {
    let trial = trial("60s").await;
    let again = call(&trial.registry, json!({"path": COUNT, "then": "again"})).await;
    let message = again.assert_refused(ToolErrorKind::Failed, "failed");
    assert_eq!(message, format!("cannot lock `{COUNT}`: this call holds its lock already"));
    let many = call(&trial.registry, json!({"path": COUNT, "then": "many"})).await;
    let message = many.assert_refused(ToolErrorKind::Failed, "failed");
    assert_eq!(message, "cannot lock `/shared/many/15`: this call already holds 16 locks, the maximum");
    assert_eq!(files_left(&trial.fixture), 0);
}

#[tokio::test]
async fn a_lock_is_that_of_the_place_that_a_path_leads_to() {
    let fixture = Fixture::new().with_policy("[hide]\npaths = [\".env\"]\n").with_policy(&entry(
        "lock_path",
        "FileReadWrite",
        "60s",
    ));
    fixture.put("folder/count", "5");
    fixture.put(".env", "key");
    symlink("folder", fixture.shared("linked")).expect("linked");
    symlink("count", fixture.shared("folder/link")).expect("linked");
    symlink("/etc", fixture.shared("out")).expect("linked");
    let trial = Trial::in_fixture(fixture, "lock_path").await;
    assert_eq!(trial.call(json!({"path": "linked/count"})).await.text(), "6");
    for (path, kind) in [
        ("folder/link", ToolErrorKind::Failed),
        (".env", ToolErrorKind::NotFound),
        ("/shared", ToolErrorKind::InvalidArguments),
        ("out/count", ToolErrorKind::Denied),
        ("../../etc/passwd", ToolErrorKind::Denied),
    ] {
        let answer = trial.call(json!({"path": path, "then": "forget"})).await;
        assert_eq!(answer.error().kind(), kind, "{path}: {}", answer.error());
    }
}
