//! Retention: ended runs and consumed inbox entries are removed, and nothing else.

use portcullis_store::{
    ExternalCallStatus, NewApprovalRequest, NewInboxEntry, NewStartedCall, PageRequest, RunFilter, RunStatus,
    RunStore, StoreError,
};

use super::{NOW, add_run, commit, guard, json, new_call};

async fn end(store: &dyn RunStore, run: &str, time: i64) {
    let mut last = commit(run, 1);
    last.status = RunStatus::Completed;
    last.guard.now = time;
    last.messages = vec![json("1")];
    store.commit_step(last).await.expect("committed");
}

async fn ids(store: &dyn RunStore) -> Vec<String> {
    let page = store.runs(RunFilter::default(), PageRequest::default()).await.expect("a page");
    page.items.into_iter().map(|run| run.id).collect()
}

pub(crate) async fn ended_runs_are_removed_with_all_they_have(store: &dyn RunStore) {
    for run in ["r1", "r2", "r3", "r4"] {
        add_run(store, run).await;
    }
    let started = NewStartedCall {
        call: "c".to_owned(),
        tool: "t".to_owned(),
        arguments: json("1"),
        may_repeat: false,
        labels: Vec::new(),
    };
    store.start_call(guard("r1"), started).await.expect("begun");
    store
        .add_external_call(guard("r1"), new_call("c", ExternalCallStatus::Waiting))
        .await
        .expect("a new call");
    store.cancel_external_call("c", NOW).await.expect("cancelled");
    let question = ["a", "c", "t", "question", "hash"].map(str::to_owned);
    let [id, call, tool, question, hash] = question;
    let question = NewApprovalRequest { id, call, tool, question, hash, expires: None };
    store.add_approval(guard("r1"), question).await.expect("asked");
    for (run, time) in [("r1", NOW + 1), ("r2", NOW + 2), ("r3", NOW + 3)] {
        end(store, run, time).await;
    }
    for _ in 0..2 {
        let (agent, kind) = ("agent".to_owned(), "k".to_owned());
        store.push_inbox(NewInboxEntry { agent, kind, body: json("1"), created: 1 }).await.expect("sent");
    }
    store.consume_inbox("agent", 1, NOW).await.expect("consumed");
    assert_eq!(store.remove_ended_before(NOW + 3, 1).await.expect("removed"), 1);
    assert_eq!(ids(store).await, ["r4", "r3", "r2"], "the oldest goes first");
    assert_eq!(store.remove_ended_before(NOW + 3, 9).await.expect("removed"), 1);
    assert_eq!(store.remove_ended_before(NOW + 3, 9).await.expect("removed"), 0);
    assert_eq!(ids(store).await, ["r4", "r3"], "one is newer, and one has not ended");
    for error in [
        store.external_call("c").await.map(|_| ()).expect_err("removed"),
        store.approval("a").await.map(|_| ()).expect_err("removed"),
        store.messages("r1", PageRequest::default()).await.map(|_| ()).expect_err("removed"),
    ] {
        assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    }
    // The id can be reused, and nothing is left of the old run.
    add_run(store, "r1").await;
    assert_eq!(
        store.messages("r1", PageRequest::default()).await.expect("the store reads the page").items,
        []
    );
    assert_eq!(
        store.started_calls("r1", PageRequest::default()).await.expect("the store reads the page").items,
        []
    );
    let inbox = store.inbox("agent", PageRequest::default()).await.expect("the store reads the page").items;
    assert_eq!(inbox.iter().map(|entry| entry.ordinal).collect::<Vec<_>>(), [2]);
}

pub(crate) async fn a_run_with_an_open_call_stays(store: &dyn RunStore) {
    add_run(store, "r").await;
    store
        .add_external_call(guard("r"), new_call("c", ExternalCallStatus::Pending))
        .await
        .expect("a new call");
    end(store, "r", NOW + 1).await;
    assert_eq!(store.remove_ended_before(NOW + 9, 9).await.expect("none"), 0);
    store.resolve_external_call("c", json("1"), NOW + 2).await.expect("a result after the run's end");
    assert_eq!(store.remove_ended_before(NOW + 9, 9).await.expect("removed"), 1);
}
