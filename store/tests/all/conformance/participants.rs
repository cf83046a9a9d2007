//! Participants: adding, changing, listing and removing them.

use portcullis_store::{
    Entity, GatewayStore, NewNote, NoteKind, PageRequest, Participant, ParticipantKind, ParticipantUpdate,
    StoreError, Token,
};

use super::{
    NOW,
    builders::{add_participant, add_space, new_entry, new_message, new_participant, post},
    json,
};

pub(crate) async fn a_participant_is_kept_changed_and_listed(store: &dyn GatewayStore) {
    for (id, kind, created) in
        [("a", ParticipantKind::Agent, 5), ("u", ParticipantKind::User, 7), ("b", ParticipantKind::Agent, 7)]
    {
        let new = portcullis_store::NewParticipant { created, ..new_participant(id, kind) };
        store.create_participant(new).await.expect("a new participant");
    }
    let error =
        store.create_participant(new_participant("a", ParticipantKind::User)).await.expect_err("taken");
    assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Participant, .. }), "{error}");
    let update = ParticipantUpdate {
        id: "a".to_owned(),
        version: 1,
        name: "Bo".to_owned(),
        definition: json(r#"{ "n": 1e400 }"#),
        updated: 9,
    };
    assert_eq!(store.update_participant(update.clone()).await.expect("changed"), 2);
    let error = store.update_participant(update.clone()).await.expect_err("another version");
    assert!(
        matches!(&error, StoreError::Changed { entity: Entity::Participant, id, expected: 1, found: 2 } if id == "a"),
        "{error}"
    );
    let expected = Participant {
        id: "a".to_owned(),
        kind: ParticipantKind::Agent,
        name: "Bo".to_owned(),
        definition: update.definition.clone(),
        version: 2,
        created: 5,
        updated: 9,
    };
    assert_eq!(store.participant("a").await.expect("the store has the participant"), expected);
    let list = async |kind, request| {
        let page = store.participants(kind, request).await.expect("a page");
        (page.items.into_iter().map(|found| found.id).collect::<Vec<_>>(), page.next)
    };
    let (ids, next) = list(None, PageRequest::first(2)).await;
    assert_eq!(ids, ["u", "b"]);
    let (ids, next) = list(None, PageRequest::after(next.expect("more"), 2)).await;
    assert_eq!((ids, next), (vec!["a".to_owned()], None));
    assert_eq!(list(Some(ParticipantKind::Agent), PageRequest::default()).await.0, ["b", "a"]);
    for error in [
        store.participant("x").await.map(|_| ()).expect_err("none"),
        store
            .update_participant(ParticipantUpdate { id: "x".to_owned(), ..update })
            .await
            .map(|_| ())
            .expect_err("none"),
        store.remove_participant("x", NOW).await.expect_err("none"),
    ] {
        assert!(
            matches!(&error, StoreError::NotFound { entity: Entity::Participant, id } if id == "x"),
            "{error}"
        );
    }
}

pub(crate) async fn a_removed_participant_leaves_its_messages_alone(store: &dyn GatewayStore) {
    for (id, kind) in [("u", ParticipantKind::User), ("a", ParticipantKind::Agent)] {
        add_participant(store, id, kind).await;
        let token = Token {
            id: format!("token of {id}"),
            hash: format!("{id:0>64}").replace('u', "b"),
            subject_kind: kind.as_str().to_owned(),
            subject: Some(id.to_owned()),
            created: NOW,
        };
        store.add_token(token).await.expect("a new token");
    }
    add_space(store, "s").await;
    store.add_member("s", "u", NOW).await.expect("joined");
    store.add_member("s", "a", NOW).await.expect("joined");
    post(store, new_message("s", "m", "hello")).await;
    let plan = NewNote { id: "p".to_owned(), body: json("1"), due: Some(NOW), every: None };
    store.set_notes("a", NoteKind::Plan, vec![plan], NOW).await.expect("set");
    store.push_inbox(new_entry("a", "1")).await.expect("sent");
    store.remove_participant("u", NOW).await.expect("removed");
    store.remove_participant("a", NOW).await.expect("removed");
    assert_eq!(store.members("s", PageRequest::default()).await.expect("the store reads the page").items, []);
    assert_eq!(store.tokens(PageRequest::default()).await.expect("listed").items, []);
    assert_eq!(store.take_due_plans(NOW, 9).await.expect("taken"), []);
    assert_eq!(
        store.inboxes_with_entries("", PageRequest::default()).await.expect("listed").items,
        [""; 0],
        "nothing wakes the agent"
    );
    let message = store.space_message("m").await.expect("the store has the message");
    assert_eq!((&*message.author.id, &*message.author.name), ("u", "Ada"));
}
