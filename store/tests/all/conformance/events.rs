//! The log of events: its topics, its order, and its retention.

use portcullis_store::{Event, EventBounds, GatewayStore, NewEvent, PageRequest, StoreError};

use super::{NOW, builders::new_event, json};

async fn ids(
    store: &dyn GatewayStore,
    topic: Option<&str>,
    request: PageRequest<i64>,
) -> (Vec<i64>, Option<i64>) {
    let page = store.events(topic, request).await.expect("a page");
    (page.items.into_iter().map(|event| event.id).collect(), page.next)
}

pub(crate) async fn events_are_read_by_topic_in_order(store: &dyn GatewayStore) {
    assert_eq!(store.event_bounds().await.expect("read"), EventBounds { newest: 0, removed: 0 });
    for (number, topics) in
        [&["space:s"] as &[&str], &["run:r", "agent:a", "run:r"], &["space:s", "agent:a"], &["run:r"]]
            .into_iter()
            .enumerate()
    {
        let id =
            store.append_event(new_event(topics, &format!("{{\"n\":{number}}}"))).await.expect("appended");
        assert_eq!(usize::try_from(id).expect("positive"), number + 1);
    }
    assert_eq!(ids(store, Some("space:s"), PageRequest::default()).await, (vec![1, 3], None));
    assert_eq!(ids(store, Some("agent:a"), PageRequest::default()).await, (vec![2, 3], None));
    assert_eq!(ids(store, Some("run:r"), PageRequest::after(2, 9)).await, (vec![4], None));
    assert_eq!(ids(store, Some("run"), PageRequest::default()).await, (vec![], None));
    assert_eq!(ids(store, None, PageRequest::first(3)).await, (vec![1, 2, 3], Some(3)));
    assert_eq!(ids(store, None, PageRequest::after(3, 3)).await, (vec![4], None));
    let read = store.events(Some("agent:a"), PageRequest::first(1)).await.expect("read").items;
    let expected = Event {
        id: 2,
        topics: vec!["agent:a".to_owned(), "run:r".to_owned()],
        kind: "message.created".to_owned(),
        data: json("{\"n\":1}"),
        created: NOW,
    };
    assert_eq!(read, [expected]);
    let error = store.append_event(new_event(&[], "1")).await.expect_err("no topic");
    assert!(matches!(error, StoreError::Invalid { field: "the topics of the event", .. }), "{error}");
    assert_eq!(store.event_bounds().await.expect("read"), EventBounds { newest: 4, removed: 0 });
}

pub(crate) async fn old_events_are_removed_and_the_gap_is_known(store: &dyn GatewayStore) {
    // The fifth event has an early time, but follows an event that is kept. It is kept too, so that the log
    // has no gaps.
    for created in [1, 2, 3, 9, 1] {
        let event = NewEvent { created, ..new_event(&["t", "u"], "1") };
        store.append_event(event).await.expect("appended");
    }
    assert_eq!(store.remove_events_before(1, 9).await.expect("none"), 0);
    assert_eq!(store.remove_events_before(4, 2).await.expect("removed"), 2);
    assert_eq!(ids(store, Some("t"), PageRequest::default()).await.0, [3, 4, 5]);
    assert_eq!(store.remove_events_before(4, 2).await.expect("removed"), 1);
    assert_eq!(store.remove_events_before(4, 2).await.expect("none"), 0);
    assert_eq!(ids(store, Some("u"), PageRequest::default()).await.0, [4, 5]);
    let bounds = store.event_bounds().await.expect("read");
    assert_eq!(bounds, EventBounds { newest: 5, removed: 3 });
    assert!(bounds.has_gap_after(0) && bounds.has_gap_after(2) && !bounds.has_gap_after(3));
    assert_eq!(store.remove_events_before(i64::MAX, 9).await.expect("removed"), 2);
    let bounds = store.event_bounds().await.expect("read");
    assert_eq!(bounds, EventBounds { newest: 5, removed: 5 }, "the newest id is known without its event");
    assert_eq!(store.append_event(new_event(&["t"], "1")).await.expect("appended"), 6);
}
