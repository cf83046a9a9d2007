//! Lists of changes: all or none, in order, and with the result of a call.

use portcullis_store::{
    Change, ChangeResult, Entity, ExternalCallStatus, GatewayStore, Json, LimitError, MessageStatus,
    MessageUpdate, NewExternalCall, NewNote, NoteKind, PageRequest, ParticipantKind, ResolveOutcome,
    ResultDelivery, StoreError, limits::MAX_UNREAD_ENTRIES,
};

use super::{
    NOW, add_run,
    builders::{add_participant, add_space, new_entry, new_event, new_message, post},
    guard, json, new_call,
};

async fn counts(store: &dyn GatewayStore) -> (usize, usize, usize) {
    let messages = store
        .space_messages("s", None, PageRequest::default())
        .await
        .expect("the store reads the page")
        .items
        .len();
    let events =
        store.events(None, PageRequest::default()).await.expect("the store reads the page").items.len();
    let entries =
        store.inbox("a", PageRequest::default()).await.expect("the store reads the page").items.len();
    (messages, events, entries)
}

pub(crate) async fn changes_are_written_together_or_not_at_all(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    let changes = |id: &str| {
        vec![
            Change::PostMessage(new_message("s", id, "hello")),
            Change::AppendEvent(new_event(&["space:s"], "1")),
            Change::PushInbox(new_entry("a", "1")),
        ]
    };
    let applied = store.apply(changes("m1")).await.expect("applied");
    assert!(
        matches!(&*applied, [ChangeResult::Posted(message), ChangeResult::Event { id: 1 }, ChangeResult::Inbox { ordinal: 1 }]
            if message.ordinal == 1),
        "{applied:?}"
    );
    assert_eq!(counts(store).await, (1, 1, 1));
    let mut failing = changes("m2");
    failing.push(Change::PostMessage(new_message("s", "m1", "taken")));
    let error = store.apply(failing).await.expect_err("taken");
    assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Message, .. }), "{error}");
    let mut failing = changes("m2");
    failing.push(Change::derived(|_| Json::from_text("{").map(|_| Vec::new())));
    let error = store.apply(failing).await.expect_err("no JSON");
    assert!(matches!(error, StoreError::Json { .. }), "{error}");
    assert_eq!(counts(store).await, (1, 1, 1));
    let found = store
        .space_messages("s", Some("hello"), PageRequest::default())
        .await
        .expect("the store reads the page");
    assert_eq!(found.items.len(), 1);
    let applied = store.apply(changes("m2")).await.expect("applied");
    assert!(
        matches!(&*applied, [ChangeResult::Posted(message), ChangeResult::Event { id: 2 }, ChangeResult::Inbox { ordinal: 2 }]
            if message.ordinal == 2),
        "no number is lost: {applied:?}"
    );
    assert_eq!(store.apply(Vec::new()).await.expect("nothing"), []);
}

pub(crate) async fn later_changes_know_what_became_of_earlier_ones(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    let with_event = |change| {
        vec![
            change,
            Change::derived(|applied| {
                let message = match applied {
                    [ChangeResult::Posted(message)]
                    | [ChangeResult::Updated { is_changed: true, message }] => message,
                    [ChangeResult::Updated { is_changed: false, .. }] => return Ok(Vec::new()),
                    other => panic!("{other:?}"),
                };
                let data = Json::of(&(message.ordinal, message.status))?;
                let event = portcullis_store::NewEvent { data, ..new_event(&["space:s"], "0") };
                let last = Change::derived(|applied| {
                    assert!(matches!(applied, [_, ChangeResult::Event { .. }]), "{applied:?}");
                    Ok(vec![Change::PushInbox(new_entry("a", "1"))])
                });
                Ok(vec![Change::AppendEvent(event), last])
            }),
        ]
    };
    let applied =
        store.apply(with_event(Change::PostMessage(new_message("s", "m", "")))).await.expect("applied");
    assert_eq!(applied.len(), 3, "{applied:?}");
    let update = || {
        with_event(Change::UpdateMessage(MessageUpdate {
            id: "m".to_owned(),
            expected: Some(MessageStatus::Complete),
            text: None,
            status: Some(MessageStatus::Error),
            metadata: None,
            updated: NOW,
        }))
    };
    assert_eq!(store.apply(update()).await.expect("applied").len(), 3);
    assert_eq!(store.apply(update()).await.expect("applied").len(), 1, "the loser appends nothing");
    let events = store.events(Some("space:s"), PageRequest::default()).await.expect("read").items;
    let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
    assert_eq!(data, [r#"[1,"complete"]"#, r#"[1,"error"]"#]);
}

pub(crate) async fn every_change_says_what_it_became(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_participant(store, "u", ParticipantKind::User).await;
    let member = || Change::AddMember { space: "s".to_owned(), participant: "u".to_owned(), joined: NOW };
    let left = || Change::RemoveMember { space: "s".to_owned(), participant: "u".to_owned() };
    let note = NewNote { id: "g".to_owned(), body: json("1"), due: None, every: None };
    let (agent, kind) = ("a".to_owned(), NoteKind::Goal);
    let applied = store
        .apply(vec![
            member(),
            member(),
            left(),
            left(),
            Change::SetNotes { agent: agent.clone(), kind, notes: vec![note], now: NOW },
            Change::RemoveNotes { agent, kind, ids: vec!["g".to_owned(), "h".to_owned()] },
        ])
        .await
        .expect("applied");
    let expected = [
        ChangeResult::Joined { is_new: true },
        ChangeResult::Joined { is_new: false },
        ChangeResult::Left { was_member: true },
        ChangeResult::Left { was_member: false },
        ChangeResult::NotesSet,
        ChangeResult::NotesRemoved { count: 1 },
    ];
    assert_eq!(applied, expected);
}

pub(crate) async fn a_result_and_its_changes_are_one(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_run(store, "r").await;
    for (id, status) in [
        ("w", ExternalCallStatus::Waiting),
        ("p", ExternalCallStatus::Pending),
        ("c", ExternalCallStatus::Pending),
    ] {
        store.add_external_call(guard("r"), new_call(id, status)).await.expect("a new call");
    }
    let late = NewExternalCall { expires: Some(NOW), ..new_call("e", ExternalCallStatus::Waiting) };
    store.add_external_call(guard("r"), late).await.expect("a new call");
    store.cancel_external_call("c", NOW).await.expect("cancelled");
    let event = || {
        vec![Change::derived(|applied| {
            let [ChangeResult::Resolved(delivery)] = applied else { panic!("{applied:?}") };
            let data = if *delivery == ResultDelivery::Inline { "0" } else { "1" };
            Ok(vec![Change::AppendEvent(new_event(&["run:r"], data))])
        })]
    };
    for (id, expected) in [("w", ResultDelivery::Inline), ("p", ResultDelivery::Inbox { ordinal: 1 })] {
        let resolved = store.resolve_external_call_with(id, json("1"), NOW, event()).await.expect("resolved");
        let ResolveOutcome::Resolved { delivery, applied } = resolved else { panic!("{resolved:?}") };
        assert_eq!(delivery, expected);
        assert!(
            matches!(&*applied, [ChangeResult::Resolved(first), ChangeResult::Event { .. }] if *first == expected),
            "{applied:?}"
        );
        // A second submission gets the first result, and its recipient.
        let again = store
            .resolve_external_call_with(id, json("2"), NOW, event())
            .await
            .expect("the store has the call");
        let ResolveOutcome::AlreadyClosed { call, delivery } = again else { panic!("{again:?}") };
        assert_eq!(
            (call.status, call.result, delivery),
            (ExternalCallStatus::Resolved, Some(json("1")), Some(expected))
        );
    }
    for (id, expected) in [("c", ExternalCallStatus::Cancelled), ("e", ExternalCallStatus::Expired)] {
        let closed = store
            .resolve_external_call_with(id, json("1"), NOW, event())
            .await
            .expect("the store has the call");
        let ResolveOutcome::AlreadyClosed { call, delivery } = closed else { panic!("{closed:?}") };
        assert_eq!((call.status_at(NOW), call.result, delivery), (expected, None, None));
    }
    let error = store.resolve_external_call_with("x", json("1"), NOW, event()).await.expect_err("no call");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::Call, .. }), "{error}");
    let events = store.events(Some("run:r"), PageRequest::default()).await.expect("read").items;
    let data: Vec<&str> = events.iter().map(|event| event.data.as_str()).collect();
    assert_eq!(data, ["0", "1"], "one event for each accepted result");
}

pub(crate) async fn a_full_inbox_takes_back_result_and_changes(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_run(store, "r").await;
    store
        .add_external_call(guard("r"), new_call("p", ExternalCallStatus::Pending))
        .await
        .expect("a new call");
    store
        .add_external_call(guard("r"), new_call("w", ExternalCallStatus::Waiting))
        .await
        .expect("a new call");
    post(store, new_message("s", "m", "")).await;
    let places: Vec<i64> = (0..MAX_UNREAD_ENTRIES).collect();
    for group in places.chunks(250) {
        let sent = group.iter().map(|_| store.push_inbox(new_entry("agent", "1")));
        futures_util::future::join_all(sent).await.into_iter().for_each(|sent| assert!(sent.is_ok()));
    }
    let changes =
        || vec![Change::AppendEvent(new_event(&["t"], "1")), Change::PushInbox(new_entry("agent", "1"))];
    for id in ["p", "w"] {
        let error = store.resolve_external_call_with(id, json("1"), NOW, changes()).await.expect_err("full");
        assert!(
            matches!(error, StoreError::Limit(LimitError::TooMany { limit: MAX_UNREAD_ENTRIES, .. })),
            "{error}"
        );
        assert!(
            store.external_call(id).await.expect("the store has the call").status.is_open(),
            "{id} still takes a result"
        );
    }
    assert_eq!(store.events(None, PageRequest::default()).await.expect("read").items, []);
}
