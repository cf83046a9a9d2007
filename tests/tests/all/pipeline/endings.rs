//! Cancelled calls: each still has exactly one result and its rows.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::join_all;
use portcullis_testing::Fixture;
use portcullis_tools::{
    ToolCall,
    audit::{self, Outcome, RowEvent},
};
use portcullis_types::{CancellationToken, SafetyTier, ToolErrorKind::Cancelled};
use tokio::sync::{Semaphore, oneshot};

use crate::support::{Spy, caller, fixture_enabling, native_registry, raw_call};

/// Creates a tool that signals that it runs, and then never ends by itself.
fn endless_spy(started: &Arc<Semaphore>, tier: SafetyTier) -> Spy {
    let started = Arc::clone(started);
    let spy = Spy::new("endless", move |_, _| {
        started.add_permits(1);
        std::future::pending()
    });
    spy.tier(tier).timeout(Duration::from_secs(500))
}

/// Returns the rows of each call.
fn rows_by_call(fixture: &Fixture) -> BTreeMap<String, Vec<(RowEvent, Option<Outcome>)>> {
    let mut calls: BTreeMap<_, Vec<_>> = BTreeMap::new();
    for row in fixture.rows() {
        calls.entry(row.call_id.to_string()).or_default().push((row.event, row.outcome));
    }
    calls
}

async fn cancel_a_batch(tier: SafetyTier) -> BTreeMap<String, Vec<(RowEvent, Option<Outcome>)>> {
    const CALLS: usize = 25;
    let fixture = fixture_enabling(&["endless"]);
    let started = Arc::new(Semaphore::new(0));
    let registry = native_registry(&fixture, [endless_spy(&started, tier)]);
    let mut caller = caller();
    caller.cancel = CancellationToken::new();
    let calls: Vec<ToolCall> = (0..CALLS).map(|_| raw_call("endless", "{}")).collect();
    let ids: BTreeSet<String> = calls.iter().map(|call| call.id.clone()).collect();
    let batch = join_all(calls.into_iter().map(|call| registry.execute_with_policy(call, &caller)));
    let cancelling = async {
        // Ten calls run; the others wait for a slot.
        started.acquire_many(10).await.expect("open").forget();
        caller.cancel.cancel();
    };
    let (results, ()) = tokio::join!(batch, cancelling);
    let answered: BTreeSet<String> = results.iter().map(|result| result.call_id.clone()).collect();
    assert_eq!((results.len(), answered), (CALLS, ids), "one result per call");
    for result in results {
        let error = result.into_result().expect_err("cancelled");
        assert_eq!((error.kind(), error.code()), (Cancelled, "cancelled"));
    }
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
    let rows = rows_by_call(&fixture);
    assert_eq!(rows.len(), CALLS);
    rows
}

#[tokio::test]
async fn each_call_of_a_cancelled_batch_has_one_result_and_one_row() {
    let end = (RowEvent::End, Some(Outcome::Error(Cancelled)));
    for (call, rows) in cancel_a_batch(SafetyTier::ReadOnly).await {
        assert_eq!(rows, [end], "{call}");
    }
}

#[tokio::test]
async fn cancelled_batch_records_which_calls_began() {
    let (begin, end) = ((RowEvent::Begin, None), (RowEvent::End, Some(Outcome::Error(Cancelled))));
    let rows = cancel_a_batch(SafetyTier::SideEffecting).await;
    let began = rows.values().filter(|rows| **rows == [begin, end]).count();
    let waited = rows.values().filter(|rows| **rows == [end]).count();
    assert_eq!((began, waited), (10, 15), "{rows:#?}");
}

#[tokio::test]
async fn a_call_that_is_cancelled_before_it_is_made_never_runs() {
    let fixture = fixture_enabling(&["endless"]);
    let started = Arc::new(Semaphore::new(0));
    let registry = native_registry(&fixture, [endless_spy(&started, SafetyTier::SideEffecting)]);
    let caller = caller();
    caller.cancel.cancel();
    let result = registry.execute_with_policy(raw_call("endless", "{}"), &caller).await;
    assert_eq!(result.into_result().expect_err("cancelled").kind(), Cancelled);
    assert_eq!(started.available_permits(), 0);
    assert_eq!(fixture.rows().len(), 1);
}

struct SignalOnDrop(Option<oneshot::Sender<()>>);

impl Drop for SignalOnDrop {
    fn drop(&mut self) {
        if let Some(sender) = self.0.take() {
            let _ = sender.send(());
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_caller_that_goes_away_stops_the_tool_and_leaves_a_row() {
    let fixture = fixture_enabling(&["spy"]);
    let (gone, is_gone) = oneshot::channel();
    let gone = std::sync::Mutex::new(Some(SignalOnDrop(Some(gone))));
    let started = Arc::new(Semaphore::new(0));
    let starts = Arc::clone(&started);
    let spy = Spy::new("spy", move |_, _| {
        let guard = gone.lock().expect("not poisoned").take();
        let started = Arc::clone(&starts);
        async move {
            let _guard = guard;
            started.add_permits(1);
            std::future::pending().await
        }
    });
    let registry =
        native_registry(&fixture, [spy.tier(SafetyTier::SideEffecting).timeout(Duration::from_secs(500))]);
    let caller = caller();
    {
        let call = registry.execute_with_policy(raw_call("spy", "{}"), &caller);
        tokio::select! {
            result = call => panic!("never ends by itself: {result:?}"),
            permit = started.acquire() => permit.expect("open").forget(),
        }
    }
    tokio::time::timeout(Duration::from_secs(20), is_gone)
        .await
        .expect("the tool is stopped, not only left alone")
        .expect("dropped");
    let rows = fixture.rows();
    let events: Vec<_> = rows.iter().map(|row| (row.event, row.outcome, row.code.as_deref())).collect();
    assert_eq!(
        events,
        [
            (RowEvent::Begin, None, None),
            (RowEvent::End, Some(Outcome::Error(Cancelled)), Some("caller_gone")),
        ]
    );
}

#[tokio::test]
async fn two_calls_of_one_id_each_have_their_rows() {
    let fixture = fixture_enabling(&["spy"]);
    let registry = native_registry(&fixture, [Spy::repeating("spy").tier(SafetyTier::SideEffecting)]);
    let caller = caller();
    let call = || ToolCall { id: "the provider's".to_owned(), ..raw_call("spy", "{}") };
    let (one, other) = tokio::join!(
        registry.execute_with_policy(call(), &caller),
        registry.execute_with_policy(call(), &caller)
    );
    assert!(one.outcome.is_output() && other.outcome.is_output());
    let rows = rows_by_call(&fixture).remove("the provider's").expect("rows");
    let begins = rows.iter().filter(|(event, _)| *event == RowEvent::Begin).count();
    assert_eq!((begins, rows.len()), (2, 4));
    let report = audit::verify(&audit::log_path(&fixture.state())).expect("readable");
    assert!(report.is_intact() && report.open_begins.is_empty(), "{report:#?}");
}
