//! Steps are written completely or not at all, and only with the right version and lease.

use portcullis_store::{
    Json, NewInboxEntry, Page, PageRequest, RunStatus, RunStore, StoreError, limits::MAX_PAGE_BYTES,
};

use super::{NOW, add_run, commit, guard, json, new_run};

pub(crate) async fn a_step_is_written_as_a_whole(store: &dyn RunStore) {
    let mut new = new_run("r");
    new.messages = vec![json("1")];
    store.create_run(new).await.expect("a new run");
    for entry in 0..3 {
        let body = Json::of(&entry).expect("JSON");
        let entry = NewInboxEntry { agent: "agent".to_owned(), kind: "k".to_owned(), body, created: 1 };
        store.push_inbox(entry).await.expect("sent");
    }
    let mut step = commit("r", 1);
    step.messages = vec![json("2"), json("3")];
    step.labels = vec!["secret".to_owned()];
    step.status = RunStatus::Waiting;
    step.consumed_inbox = Some(("agent".to_owned(), 2));
    step.guard.now = NOW + 1;
    assert_eq!(store.commit_step(step.clone()).await.expect("committed"), 2);
    let run = store.run("r").await.expect("the store has the run");
    assert_eq!(run.state, step.state);
    let summary = run.summary;
    assert_eq!((summary.version, summary.messages, summary.steps, summary.updated), (2, 3, 1, NOW + 1));
    assert_eq!((summary.status, summary.labels), (RunStatus::Waiting, step.labels));
    let messages = store.messages("r", PageRequest::after(1, 10)).await.expect("the store reads the page");
    let bodies: Vec<&str> = messages.items.iter().map(|message| message.body.as_str()).collect();
    assert_eq!((bodies, messages.next), (vec!["2", "3"], None));
    let steps = store.steps("r", PageRequest::default()).await.expect("the store reads the page").items;
    assert_eq!((steps.len(), steps[0].ordinal, &steps[0].record), (1, 1, &step.step));
    let inbox = store.inbox("agent", PageRequest::default()).await.expect("the store reads the page").items;
    assert_eq!(inbox.iter().map(|entry| entry.ordinal).collect::<Vec<_>>(), [3]);
}

pub(crate) async fn a_step_needs_version_and_lease(store: &dyn RunStore) {
    let error = store.commit_step(commit("r", 1)).await.expect_err("no run");
    assert!(matches!(error, StoreError::NotFound { .. }), "{error}");
    add_run(store, "r").await;
    assert_eq!(store.commit_step(commit("r", 1)).await.expect("committed"), 2);
    let mut late = commit("r", 1);
    late.messages = vec![json("1")];
    let error = store.commit_step(late).await.expect_err("another was faster");
    assert!(matches!(error, StoreError::Conflict { expected: 1, found: 2, .. }), "{error}");
    let mut other = commit("r", 2);
    "process 2".clone_into(&mut other.guard.owner);
    let error = store.commit_step(other).await.expect_err("not the owner");
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
    let run = store.run("r").await.expect("the store has the run").summary;
    assert_eq!((run.version, run.messages, run.steps), (2, 0, 1));
    let messages = store.messages("r", PageRequest::default()).await.expect("the store reads the page");
    assert_eq!(messages, Page { items: Vec::new(), next: None });
}

pub(crate) async fn the_last_step_ends_the_run(store: &dyn RunStore) {
    add_run(store, "r").await;
    let mut last = commit("r", 1);
    last.status = RunStatus::Failed;
    store.commit_step(last).await.expect("committed");
    let run = store.run("r").await.expect("the store has the run").summary;
    assert_eq!((run.status, run.lease), (RunStatus::Failed, None));
    for error in [
        store.commit_step(commit("r", 2)).await.expect_err("over"),
        store.acquire_lease(guard("r"), 9).await.expect_err("over"),
        store.renew_lease(guard("r"), 9).await.expect_err("over"),
    ] {
        assert!(matches!(error, StoreError::Ended { .. }), "{error}");
    }
}

pub(crate) async fn pages_of_messages_end_at_their_bytes(store: &dyn RunStore) {
    let large = json(&format!("\"{}\"", "x".repeat(12 << 20)));
    let mut new = new_run("r");
    new.messages = vec![large.clone(), large.clone(), large.clone(), large, json("5")];
    store.create_run(new).await.expect("a new run");
    let (mut request, mut pages) = (PageRequest::default(), Vec::new());
    loop {
        let Page { items, next } = store.messages("r", request).await.expect("a page");
        pages.push(items.iter().map(|message| message.ordinal).collect::<Vec<_>>());
        let Some(cursor) = next else { break };
        request = PageRequest::after(cursor, 1_000);
    }
    assert_eq!(pages, [vec![1, 2, 3], vec![4, 5]], "a page ends after {MAX_PAGE_BYTES} bytes");
}
