//! Inboxes: order, consumption, and their bound.

use portcullis_store::{
    CallStatus, Json, LimitError, NewInboxEntry, PageRequest, RunStore, StoreError, limits::MAX_INBOX,
};

use super::{NOW, add_run, guard, json, new_call};

fn entry(agent: &str, body: i64) -> NewInboxEntry {
    NewInboxEntry {
        agent: agent.to_owned(),
        kind: "message".to_owned(),
        body: Json::of(&body).expect("JSON"),
        created: NOW,
    }
}

pub(crate) async fn entries_are_read_in_order_until_consumed(store: &dyn RunStore) {
    for place in 1..=5 {
        assert_eq!(store.push_inbox(entry("a", place)).await.expect("sent"), place);
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
    store.add_call(guard("r"), new_call("c", CallStatus::Pending)).await.expect("a new call");
    // Many at once, so that a group of writes shares its transaction.
    let places: Vec<i64> = (1..=MAX_INBOX).collect();
    for group in places.chunks(250) {
        let sent = futures_util::future::join_all(
            group.iter().map(|place| store.push_inbox(entry("agent", *place))),
        );
        sent.await.into_iter().for_each(|sent| assert!(sent.expect("sent") <= MAX_INBOX));
    }
    let error = store.push_inbox(entry("agent", 0)).await.expect_err("full");
    assert!(matches!(error, StoreError::Limit(LimitError::TooMany { limit: MAX_INBOX, .. })), "{error}");
    let error = store.resolve_call("c", json("1"), NOW).await.expect_err("full");
    assert!(matches!(error, StoreError::Limit(LimitError::TooMany { .. })), "{error}");
    assert_eq!(
        store.call("c").await.expect("there").status,
        CallStatus::Pending,
        "the call still takes a result"
    );
    store.consume_inbox("agent", 1, NOW).await.expect("consumed");
    store.resolve_call("c", json("1"), NOW).await.expect("room");
}
