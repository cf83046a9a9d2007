//! Spaces and their members.

use portcullis_store::{
    Change, Entity, GatewayStore, Member, NewSpace, Page, PageRequest, ParticipantKind, Space, StoreError,
};

use super::{
    NOW,
    builders::{add_participant, add_space, new_event, new_message, post},
};

pub(crate) async fn a_space_is_kept_and_listed(store: &dyn GatewayStore) {
    add_participant(store, "u", ParticipantKind::User).await;
    for (id, created) in [("s1", 5), ("s2", 7), ("s3", 7)] {
        let space = NewSpace { id: id.to_owned(), name: "Name".to_owned(), created };
        store.create_space(space).await.expect("a new space");
    }
    let again = NewSpace { id: "s1".to_owned(), name: "Name".to_owned(), created: NOW };
    let error = store.create_space(again).await.expect_err("taken");
    assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Space, .. }), "{error}");
    for space in ["s1", "s3"] {
        store.add_member(space, "u", NOW).await.expect("joined");
    }
    post(store, new_message("s1", "m", "hello")).await;
    let expected =
        Space { id: "s1".to_owned(), name: "Name".to_owned(), created: 5, members: 1, messages: 1 };
    assert_eq!(store.space("s1").await.expect("the store has the space"), expected);
    let list = async |member, request| {
        let page = store.spaces(member, request).await.expect("a page");
        (page.items.into_iter().map(|space| space.id).collect::<Vec<_>>(), page.next)
    };
    let (ids, next) = list(None, PageRequest::first(2)).await;
    assert_eq!(ids, ["s3", "s2"]);
    let (ids, next) = list(None, PageRequest::after(next.expect("more"), 2)).await;
    assert_eq!((ids, next), (vec!["s1".to_owned()], None));
    let (ids, next) = list(Some("u"), PageRequest::first(1)).await;
    assert_eq!(ids, ["s3"]);
    assert_eq!(list(Some("u"), PageRequest::after(next.expect("more"), 2)).await.0, ["s1"]);
    assert_eq!(list(Some("x"), PageRequest::default()).await.0, [""; 0]);
}

pub(crate) async fn members_come_and_go(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_space(store, "t").await;
    for (id, kind) in
        [("u", ParticipantKind::User), ("a", ParticipantKind::Agent), ("b", ParticipantKind::Agent)]
    {
        add_participant(store, id, kind).await;
    }
    assert!(store.add_member("s", "u", 3).await.expect("joined"));
    assert!(!store.add_member("s", "u", 9).await.expect("there already"));
    assert!(store.add_member("s", "a", 2).await.expect("joined"));
    assert!(store.add_member("t", "b", 2).await.expect("joined"));
    let member =
        |id: &str, kind, joined| Member { id: id.to_owned(), kind, name: format!("name of {id}"), joined };
    let (first, second) = (member("a", ParticipantKind::Agent, 2), member("u", ParticipantKind::User, 3));
    let page = store.members("s", PageRequest::first(1)).await.expect("a page");
    assert_eq!(page.items, [first]);
    let page = store.members("s", PageRequest::after(page.next.expect("more"), 9)).await.expect("a page");
    assert_eq!(page, Page { items: vec![second], next: None });
    assert!(store.is_member("s", "u").await.expect("answered"));
    assert!(!store.is_member("t", "u").await.expect("answered"));
    assert!(store.share_space("u", "a").await.expect("answered"));
    assert!(!store.share_space("u", "b").await.expect("answered"));
    assert!(store.remove_member("s", "u").await.expect("left"));
    assert!(!store.remove_member("s", "u").await.expect("no member"));
    assert!(!store.is_member("s", "u").await.expect("answered"));
    for (error, expected) in [
        (store.add_member("s", "x", 1).await.map(|_| ()).expect_err("none"), Entity::Participant),
        (store.add_member("x", "u", 1).await.map(|_| ()).expect_err("none"), Entity::Space),
        (store.remove_member("x", "u").await.map(|_| ()).expect_err("none"), Entity::Space),
        (store.members("x", PageRequest::default()).await.map(|_| ()).expect_err("none"), Entity::Space),
    ] {
        assert!(
            matches!(&error, StoreError::NotFound { entity, id } if *entity == expected && id == "x"),
            "{error}"
        );
    }
}

pub(crate) async fn a_removed_space_is_not_found_and_is_swept(store: &dyn GatewayStore) {
    add_participant(store, "u", ParticipantKind::User).await;
    for space in ["s", "t"] {
        add_space(store, space).await;
        store.add_member(space, "u", NOW).await.expect("joined");
        for number in 0..5 {
            let message = new_message(space, &format!("{space}{number}"), "hello world");
            let message = portcullis_store::NewMessage { call: Some(format!("call {space}")), ..message };
            post(store, message).await;
            let topic = format!("space:{space}");
            store.append_event(new_event(&[&topic], "1")).await.expect("appended");
        }
    }
    store.append_event(new_event(&["space:s", "run:r"], "2")).await.expect("appended");
    assert_eq!(store.sweep_spaces(9).await.expect("none"), 0);
    store.remove_space("s", "space:s").await.expect("removed");
    for error in [
        store.space("s").await.map(|_| ()).expect_err("removed"),
        store.remove_space("s", "space:s").await.expect_err("removed"),
        store.space_messages("s", None, PageRequest::default()).await.map(|_| ()).expect_err("removed"),
        store.add_member("s", "u", NOW).await.map(|_| ()).expect_err("removed"),
        store
            .apply(vec![Change::PostMessage(new_message("s", "new", ""))])
            .await
            .map(|_| ())
            .expect_err("removed"),
    ] {
        assert!(matches!(&error, StoreError::NotFound { entity: Entity::Space, id } if id == "s"), "{error}");
    }
    let error = store.space_message("s0").await.expect_err("removed");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::Message, .. }), "{error}");
    assert_eq!(store.call_message("call s").await.expect("answered"), None);
    let ids: Vec<String> = store
        .spaces(Some("u"), PageRequest::default())
        .await
        .expect("listed")
        .items
        .into_iter()
        .map(|space| space.id)
        .collect();
    assert_eq!(ids, ["t"]);
    let mut swept = Vec::new();
    loop {
        let removed = store.sweep_spaces(2).await.expect("swept");
        if removed == 0 {
            break;
        }
        swept.push(removed);
    }
    assert_eq!(swept, [2, 2, 2, 10, 2, 2, 1, 1], "six events, ten words, five messages, one space");
    let count = async |topic| store.events(topic, PageRequest::default()).await.expect("read").items.len();
    assert_eq!(count(Some("space:s")).await, 0);
    assert_eq!(count(Some("run:r")).await, 1, "the event has another topic");
    assert_eq!(count(Some("space:t")).await, 5);
    assert_eq!(count(None).await, 6);
    assert!(!store.event_bounds().await.expect("read").has_gap_after(0), "other readers miss nothing");
    // The id can be reused, and nothing is left of the old space.
    add_space(store, "s").await;
    assert_eq!(
        store
            .space_messages("s", None, PageRequest::default())
            .await
            .expect("the store reads the page")
            .items,
        []
    );
    let found = store
        .space_messages("s", Some("hello"), PageRequest::default())
        .await
        .expect("the store reads the page");
    assert_eq!(found.items, []);
    let found = store
        .space_messages("t", Some("hello"), PageRequest::default())
        .await
        .expect("the store reads the page");
    assert_eq!(found.items.len(), 5);
}
