//! Cancelling a call stops the guest itself, not only the wait for it.

use std::{sync::Arc, time::Instant};

use futures_util::future::join_all;
use portcullis_testing::{CallOutcome, TEST_TIMEOUT, approving_caller};
use portcullis_tools::{Caller, ToolResult, new_call};
use portcullis_types::{ToolErrorKind, ToolEvent};
use tokio::sync::Semaphore;

use super::Trial;

/// Creates a caller, and a semaphore with a permit for each call that has started.
fn counting_caller() -> (Caller, Arc<Semaphore>) {
    let started = Arc::new(Semaphore::new(0));
    let mut caller = approving_caller();
    let signal = Arc::clone(&started);
    caller.on_event = Some(Arc::new(move |event| {
        if matches!(event, ToolEvent::Started { .. }) {
            signal.add_permits(1);
        }
    }));
    (caller, started)
}

async fn execute(trial: &Trial, caller: &Caller) -> ToolResult {
    trial.registry.execute_with_policy(new_call(trial.guest, "{}"), caller).await
}

async fn check_cancelled(guest: &'static str) {
    let trial = Trial::with_profile(guest, "Nothing", "60s").await;
    for _ in 0..20 {
        let (caller, started) = counting_caller();
        let cancel = async {
            started.acquire().await.expect("open").forget();
            caller.cancel.cancel();
            Instant::now()
        };
        let calls = async { (execute(&trial, &caller).await, Instant::now()) };
        let ((result, ended), cancelled) = tokio::join!(calls, cancel);
        CallOutcome(result).assert_refused(ToolErrorKind::Cancelled, "cancelled");
        assert!(ended.duration_since(cancelled).as_secs() < 3);
        let row = trial.row();
        assert_eq!(row.outcome.expect("an outcome").as_str(), "cancelled");
        assert!(row.cpu_us.is_some(), "the worker itself reported, it was not written off: {row:#?}");
    }
    trial.assert_others_are_served().await;
}

#[tokio::test]
async fn a_cancelled_loop_ends_and_frees_its_worker() {
    check_cancelled("loop_forever").await;
}

#[tokio::test]
async fn a_cancelled_sleep_ends_and_frees_its_worker() {
    check_cancelled("sleep_for_an_hour").await;
}

#[tokio::test]
async fn a_call_cancelled_before_it_starts_never_runs() {
    let trial = Trial::new("loop_forever").await;
    let caller = approving_caller();
    caller.cancel.cancel();
    CallOutcome(execute(&trial, &caller).await).assert_refused(ToolErrorKind::Cancelled, "cancelled");
    assert_eq!(trial.row().peak_memory, None);
}

#[tokio::test]
async fn a_dropped_call_is_in_the_log_and_its_worker_serves_others() {
    let trial = Trial::with_profile("loop_forever", "WorkspaceRead", "60s").await;
    for _ in 0..20 {
        let (caller, started) = counting_caller();
        tokio::select! {
            result = execute(&trial, &caller) => panic!("it ended by itself: {result:?}"),
            permit = started.acquire() => permit.expect("open").forget(),
        }
        let row = trial.row();
        assert_eq!(row.outcome.expect("an outcome").as_str(), "cancelled");
        assert_eq!(row.code.as_deref(), Some("caller_gone"));
    }
    for _ in 0..20 {
        trial.assert_others_are_served().await;
    }
}

/// Drops a batch of calls and starts another immediately, before the first batch's threads are back in the pool.
#[tokio::test]
async fn a_batch_may_follow_at_once_on_one_that_was_dropped() {
    let trial = Trial::with_profile("loop_forever", "Nothing", "60s").await;
    for _ in 0..10 {
        let (caller, started) = counting_caller();
        tokio::select! {
            _ = join_all((0..10).map(|_| execute(&trial, &caller))) => panic!("they ended by themselves"),
            permits = started.acquire_many(10) => permits.expect("open").forget(),
        }
    }
    let (caller, started) = counting_caller();
    let cancel = async {
        started.acquire_many(10).await.expect("open").forget();
        caller.cancel.cancel();
    };
    let (results, ()) = tokio::join!(join_all((0..10).map(|_| execute(&trial, &caller))), cancel);
    for result in results {
        CallOutcome(result).assert_refused(ToolErrorKind::Cancelled, "cancelled");
    }
    trial.assert_others_are_served().await;
}

#[tokio::test]
async fn the_end_of_the_turn_ends_the_call() {
    let trial = Trial::with_profile("loop_forever", "Nothing", "60s").await;
    let mut caller = approving_caller();
    caller.turn_deadline = Some(Instant::now() + std::time::Duration::from_millis(300));
    let result = tokio::time::timeout(TEST_TIMEOUT, execute(&trial, &caller)).await.expect("it ends");
    CallOutcome(result).assert_refused(ToolErrorKind::Timeout, "timeout");
}
