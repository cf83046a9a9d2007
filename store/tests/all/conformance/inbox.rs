//! Inboxes: order, consumption, and the limit.

use portcullis_store::{
    ExternalCallStatus, GatewayStore, InboxSpan, Json, LimitError, NewInboxEntry, NewRun, PageRequest,
    RunStore, StoreError, limits::MAX_UNREAD_ENTRIES,
};

use super::{NOW, add_run, guard, json, new_call, new_run};

fn entry(agent: &str, body: i64) -> NewInboxEntry {
    NewInboxEntry {
        agent: agent.to_owned(),
        kind: "message".to_owned(),
        body: Json::of(&body).expect("JSON"),
        created: NOW,
    }
}

pub(crate) async fn entries_are_read_in_order_until_consumed(store: &dyn RunStore) {
    for number in 1..=5 {
        assert_eq!(store.push_inbox(entry("a", number)).await.expect("sent"), number);
    }
    assert_eq!(store.push_inbox(entry("b", 1)).await.expect("sent"), 1);
    let list = async |request| {
        let page = store.inbox("a", request).await.expect("a page");
        (page.items.into_iter().map(|entry| entry.ordinal).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(list(PageRequest::first(2)).await, (vec![1, 2], Some(2)));
    assert_eq!(store.consume_inbox("a", 3, NOW).await.expect("consumed"), 3);
    assert_eq!(store.consume_inbox("a", 3, NOW).await.expect("consumed"), 0);
    assert_eq!(list(PageRequest::default()).await, (vec![4, 5], None));
    assert_eq!(store.push_inbox(entry("a", 6)).await.expect("sent"), 6);
    assert_eq!(store.consume_inbox("x", 3, NOW).await.expect("none"), 0);
}

pub(crate) async fn a_full_inbox_refuses_and_loses_nothing(store: &dyn RunStore) {
    add_run(store, "r").await;
    store
        .add_external_call(guard("r"), new_call("c", ExternalCallStatus::Pending))
        .await
        .expect("a new call");
    // Send many entries concurrently, so that a group of writes shares its transaction.
    let places: Vec<i64> = (1..=MAX_UNREAD_ENTRIES).collect();
    for group in places.chunks(250) {
        let sent = futures_util::future::join_all(
            group.iter().map(|number| store.push_inbox(entry("agent", *number))),
        );
        sent.await.into_iter().for_each(|sent| assert!(sent.expect("sent") <= MAX_UNREAD_ENTRIES));
    }
    let error = store.push_inbox(entry("agent", 0)).await.expect_err("full");
    assert!(
        matches!(error, StoreError::Limit(LimitError::TooMany { limit: MAX_UNREAD_ENTRIES, .. })),
        "{error}"
    );
    let error = store.resolve_external_call("c", json("1"), NOW).await.expect_err("full");
    assert!(matches!(error, StoreError::Limit(LimitError::TooMany { .. })), "{error}");
    assert_eq!(
        store.external_call("c").await.expect("the store has the call").status,
        ExternalCallStatus::Pending,
        "the call still takes a result"
    );
    store.consume_inbox("agent", 1, NOW).await.expect("consumed");
    store.resolve_external_call("c", json("1"), NOW).await.expect("room");
}

pub(crate) async fn inboxes_with_entries_are_found_by_their_prefix(store: &dyn GatewayStore) {
    for agent in ["agt_1", "agt_2", "agt_3", "agt", "b", "agt_ä", "run_1"] {
        store.push_inbox(entry(agent, 1)).await.expect("sent");
    }
    store.push_inbox(entry("agt_2", 2)).await.expect("sent");
    store.consume_inbox("agt_1", 1, NOW).await.expect("consumed");
    store.consume_inbox("agt_2", 1, NOW).await.expect("consumed");
    let list = async |prefix, request| {
        let page = store.inboxes_with_entries(prefix, request).await.expect("a page");
        (page.items, page.next)
    };
    let (names, next) = list("agt_", PageRequest::first(2)).await;
    assert_eq!(names, ["agt_2", "agt_3"]);
    let (names, next) = list("agt_", PageRequest::after(next.expect("more"), 2)).await;
    assert_eq!((names, next), (vec!["agt_ä".to_owned()], None));
    assert_eq!(list("", PageRequest::default()).await.0.len(), 6);
    assert_eq!(list("x", PageRequest::default()).await.0, [""; 0]);
    assert_eq!(list("agt%", PageRequest::default()).await.0, [""; 0]);
}

pub(crate) async fn a_run_begins_with_entries_that_no_other_has(store: &dyn GatewayStore) {
    for number in 1..=5 {
        store.push_inbox(entry("a", number)).await.expect("sent");
    }
    let begin = async |id: &str, first, last| {
        let span = InboxSpan { agent: "a".to_owned(), first, last };
        let (labels, messages) = (vec!["l".to_owned()], vec![json("1")]);
        store.create_run(NewRun { consumed_inbox: Some(span), labels, messages, ..new_run(id) }).await
    };
    begin("r1", 1, 3).await.expect("begins");
    for (first, last) in [(1, 3), (3, 4), (2, 5), (4, 6), (6, 6), (5, 4), (4, i64::MAX), (i64::MIN, i64::MAX)]
    {
        let error = begin("r2", first, last).await.expect_err("not its entries");
        assert!(
            matches!(&error, StoreError::InboxConsumed { agent, first: f, last: l } if agent == "a" && (*f, *l) == (first, last)),
            "{error}"
        );
    }
    store.run("r2").await.expect_err("not created");
    let left = store.inbox("a", PageRequest::default()).await.expect("the store reads the page").items;
    assert_eq!(left.iter().map(|entry| entry.ordinal).collect::<Vec<_>>(), [4, 5]);
    begin("r2", 4, 5).await.expect("begins");
    assert_eq!(store.inboxes_with_entries("", PageRequest::default()).await.expect("listed").items, [""; 0]);
    let run = store.run("r2").await.expect("the store has the run").summary;
    assert_eq!((run.messages, run.labels), (1, vec!["l".to_owned()]));
}
