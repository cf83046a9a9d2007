//! Limits on what a gateway stores.

use portcullis_store::{
    Change, GatewayStore, LimitError, MessageUpdate, NewMessage, NewNote, NewParticipant, NoteKind,
    PageRequest, ParticipantKind, StoreError,
    limits::{
        MAX_CHANGES, MAX_DEFINITION_BYTES, MAX_EVENT_BYTES, MAX_MEMBERS, MAX_MESSAGE_TEXT_BYTES,
        MAX_METADATA_BYTES, MAX_NOTE_BYTES, MAX_NOTES, MAX_SEARCH_WORDS, MAX_TOPICS,
    },
};

use super::{
    NOW,
    builders::{add_participant, add_space, new_event, new_message, new_participant, post},
    limits::{assert_too_large, sized},
};

#[track_caller]
fn too_many<T: std::fmt::Debug>(result: Result<T, StoreError>, field: &str) {
    let error = result.expect_err("over the limit");
    assert!(
        matches!(&error, StoreError::Limit(LimitError::TooMany { field: found, .. }) if *found == field),
        "{error}"
    );
}

pub(crate) async fn values_of_a_gateway_are_bounded(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    let participant =
        |bytes| NewParticipant { definition: sized(bytes), ..new_participant("u", ParticipantKind::User) };
    let added = store.create_participant(participant(MAX_DEFINITION_BYTES + 1)).await;
    assert_too_large(added, "the definition", MAX_DEFINITION_BYTES);
    store.create_participant(participant(MAX_DEFINITION_BYTES)).await.expect("the largest");

    let message = |text: usize, metadata| NewMessage {
        metadata: Some(sized(metadata)),
        ..new_message("s", "m", &"x".repeat(text))
    };
    let apply = async |message| store.apply(vec![Change::PostMessage(message)]).await;
    let (text, metadata) = (MAX_MESSAGE_TEXT_BYTES, MAX_METADATA_BYTES);
    assert_too_large(apply(message(text + 1, 2)).await, "the text of the message", text);
    assert_too_large(apply(message(1, metadata + 1)).await, "the metadata of the message", metadata);
    let largest = post(store, message(text, metadata)).await;
    let update = |text: Option<String>| MessageUpdate {
        id: "m".to_owned(),
        expected: None,
        text,
        status: None,
        metadata: None,
        updated: NOW,
    };
    let long = update(Some("x".repeat(text + 1)));
    assert_too_large(store.apply(vec![Change::UpdateMessage(long)]).await, "the text of the message", text);
    for text in ["\0", "a\0b"] {
        let update = update(Some(text.to_owned()));
        let error = store.apply(vec![Change::UpdateMessage(update)]).await.expect_err("NUL");
        assert!(matches!(error, StoreError::Nul { field: "the text of the message" }), "{error}");
    }
    assert_eq!(store.space_message("m").await.expect("the store has the message"), largest);

    let event = portcullis_store::NewEvent { data: sized(MAX_EVENT_BYTES + 1), ..new_event(&["t"], "1") };
    assert_too_large(store.append_event(event).await, "the data of the event", MAX_EVENT_BYTES);
    let topics = vec!["t"; MAX_TOPICS + 1];
    too_many(store.append_event(new_event(&topics, "1")).await, "the topics of the event");

    let note = NewNote { id: "n".to_owned(), body: sized(MAX_NOTE_BYTES + 1), due: None, every: None };
    let set = store.set_notes("a", NoteKind::Memory, vec![note], NOW).await;
    assert_too_large(set, "the note", MAX_NOTE_BYTES);

    let search: String = (0..=MAX_SEARCH_WORDS).map(|word| format!("{word} ")).collect();
    let found = store.space_messages("s", Some(&search), PageRequest::default()).await;
    too_many(found, "the words of the search");
    for error in [
        store.find_token("a\0b").await.map(|found| assert_eq!(found, None)),
        store
            .space_messages("s", Some("a\0b"), PageRequest::default())
            .await
            .map(|page| assert_eq!(page.items, [])),
        store
            .inboxes_with_entries("a\0b", PageRequest::default())
            .await
            .map(|page| assert_eq!(page.items, [""; 0])),
    ] {
        assert!(matches!(error, Ok(()) | Err(StoreError::Nul { .. })), "{error:?}");
    }
}

pub(crate) async fn the_numbers_of_rows_are_bounded(store: &dyn GatewayStore) {
    let note = |number: i64| NewNote { id: number.to_string(), body: sized(2), due: None, every: None };
    let set = async |places: std::ops::Range<i64>| {
        store.set_notes("a", NoteKind::Memory, places.map(note).collect(), NOW).await
    };
    set(0..MAX_NOTES).await.expect("the most");
    too_many(set(MAX_NOTES..MAX_NOTES + 1).await, "the notes of the agent");
    too_many(set(0..MAX_NOTES + 1).await, "the notes");
    set(0..1).await.expect("replaced");
    add_space(store, "s").await;
    let ids: Vec<String> = (0..=MAX_MEMBERS).map(|number| format!("u{number}")).collect();
    for group in ids.chunks(250) {
        let added = group.iter().map(|id| add_participant(store, id, ParticipantKind::User));
        futures_util::future::join_all(added).await;
    }
    for (number, id) in (0..).zip(&ids) {
        match store.add_member("s", id, NOW).await {
            Ok(is_new) => assert!(is_new && number < MAX_MEMBERS),
            Err(error) => {
                assert_eq!(number, MAX_MEMBERS);
                too_many::<()>(Err(error), "the members of the space");
            }
        }
    }
    assert_eq!(store.space("s").await.expect("the store has the space").members, MAX_MEMBERS);
    let events = (0..=MAX_CHANGES).map(|_| Change::AppendEvent(new_event(&["t"], "1"))).collect();
    too_many(store.apply(events).await, "the changes");
    assert_eq!(store.event_bounds().await.expect("read").newest, 0);
}

pub(crate) async fn functions_that_make_functions_end(store: &dyn GatewayStore) {
    fn endless() -> Change {
        Change::derived(|_| Ok(vec![endless()]))
    }
    fn doubled() -> Change {
        Change::derived(|_| Ok(vec![doubled(), doubled()]))
    }
    too_many(store.apply(vec![endless()]).await, "the changes");
    too_many(store.apply(vec![doubled()]).await, "the changes");
}
