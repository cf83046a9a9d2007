//! Messages of spaces: posting, changing, listing and searching them.

use portcullis_store::{
    Change, ChangeResult, Entity, ExternalCallFilter, ExternalCallStatus, GatewayStore, MessageKind,
    MessageStatus, MessageUpdate, NewMessage, Page, PageRequest, SpaceMessage, StoreError,
    limits::{MAX_METADATA_BYTES, MAX_PAGE_BYTES},
};

use super::{
    NOW, add_run,
    builders::{add_space, new_message, post},
    guard, json, new_call,
};

fn update(id: &str) -> MessageUpdate {
    MessageUpdate {
        id: id.to_owned(),
        expected: None,
        text: None,
        status: None,
        metadata: None,
        updated: NOW + 1,
    }
}

async fn change(store: &dyn GatewayStore, update: MessageUpdate) -> Result<(bool, SpaceMessage), StoreError> {
    let mut applied = store.apply(vec![Change::UpdateMessage(update)]).await?;
    match applied.pop() {
        Some(ChangeResult::Updated { is_changed, message }) if applied.is_empty() => {
            Ok((is_changed, *message))
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) async fn a_message_is_posted_read_and_changed(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_space(store, "t").await;
    post(store, new_message("s", "m1", "first")).await;
    let tool = NewMessage {
        kind: MessageKind::Tool,
        reply_to: Some("m1".to_owned()),
        status: MessageStatus::Streaming,
        call: Some("c".to_owned()),
        metadata: Some(json(r#"{ "input": 1e400 }"#)),
        ..new_message("s", "m2", "ü\n🦀\t")
    };
    let posted = post(store, tool.clone()).await;
    let expected = SpaceMessage {
        id: "m2".to_owned(),
        space: "s".to_owned(),
        ordinal: 2,
        author: tool.author.clone(),
        kind: MessageKind::Tool,
        text: "ü\n🦀\t".to_owned(),
        reply_to: Some("m1".to_owned()),
        status: MessageStatus::Streaming,
        call: Some("c".to_owned()),
        metadata: tool.metadata.clone(),
        created: NOW,
        updated: NOW,
    };
    assert_eq!(posted, expected);
    assert_eq!(store.space_message("m2").await.expect("the store has the message"), expected);
    assert_eq!(store.call_message("c").await.expect("answered"), Some(expected.clone()));
    assert_eq!(store.call_message("x").await.expect("answered"), None);
    let ends = MessageUpdate {
        text: Some("done".to_owned()),
        status: Some(MessageStatus::Complete),
        ..update("m2")
    };
    let changed = SpaceMessage {
        text: "done".to_owned(),
        status: MessageStatus::Complete,
        updated: NOW + 1,
        ..expected
    };
    assert_eq!(change(store, ends).await.expect("changed"), (true, changed.clone()));
    assert_eq!(store.space_message("m2").await.expect("the store has the message"), changed);
    let error = store.apply(vec![Change::PostMessage(new_message("s", "m1", ""))]).await.expect_err("taken");
    assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Message, .. }), "{error}");
    let elsewhere = NewMessage { reply_to: Some("m1".to_owned()), ..new_message("t", "m3", "") };
    for (error, id) in [
        (store.space_message("x").await.map(|_| ()).expect_err("none"), "x"),
        (change(store, update("x")).await.map(|_| ()).expect_err("none"), "x"),
        (store.apply(vec![Change::PostMessage(elsewhere)]).await.map(|_| ()).expect_err("elsewhere"), "m1"),
    ] {
        assert!(
            matches!(&error, StoreError::NotFound { entity: Entity::Message, id: found } if found == id),
            "{error}"
        );
    }
    assert_eq!(post(store, new_message("s", "m3", "")).await.ordinal, 3, "failures take no ordinal");
    let newest = NewMessage { call: Some("c".to_owned()), created: NOW + 1, ..new_message("s", "m4", "") };
    post(store, newest).await;
    assert_eq!(store.call_message("c").await.expect("answered").expect("there").id, "m4");
}

pub(crate) async fn calls_are_listed_with_their_messages(store: &dyn GatewayStore) {
    add_run(store, "r").await;
    for id in ["hidden", "shown", "twice", "gone"] {
        store
            .add_external_call(guard("r"), new_call(id, ExternalCallStatus::Pending))
            .await
            .expect("a new call");
    }
    for space in ["s", "t", "u"] {
        add_space(store, space).await;
    }
    for (space, call, metadata) in [
        ("s", "shown", "1"),
        ("s", "twice", "2"),
        ("t", "twice", "3"),
        // The newest message of this call is removed with its space, and the call then has none.
        ("u", "gone", "4"),
    ] {
        let message = new_message(space, &format!("m{metadata}"), "");
        let newer = message.created + metadata.parse::<i64>().expect("a number");
        let (call, metadata) = (Some(call.to_owned()), Some(json(metadata)));
        post(store, NewMessage { call, metadata, created: newer, ..message }).await;
    }
    store.remove_space("u", "space:u").await.expect("removed");
    let page = store.shown_calls(ExternalCallFilter::default(), PageRequest::first(3)).await.expect("a page");
    let next = page.next.expect("more");
    let rest =
        store.shown_calls(ExternalCallFilter::default(), PageRequest::after(next, 3)).await.expect("a page");
    assert_eq!(rest.next, None);
    let mut found = Vec::new();
    for shown in page.items.into_iter().chain(rest.items) {
        assert_eq!(store.external_call(&shown.call.id).await.expect("the store has the call"), shown.call);
        found.push((shown.call.id, shown.space, shown.metadata));
    }
    let expected = |call: &str, shown: Option<(&str, &str)>| {
        (call.to_owned(), shown.map(|(space, _)| space.to_owned()), shown.map(|(_, metadata)| json(metadata)))
    };
    assert_eq!(
        found,
        [
            expected("twice", Some(("t", "3"))),
            expected("shown", Some(("s", "1"))),
            expected("hidden", None),
            expected("gone", None),
        ]
    );
    let other = ExternalCallFilter { agent: Some("x".to_owned()), ..ExternalCallFilter::default() };
    assert_eq!(store.shown_calls(other, PageRequest::default()).await.expect("a page").items, []);
}

pub(crate) async fn a_page_of_calls_ends_after_the_bytes_of_their_messages(store: &dyn GatewayStore) {
    add_run(store, "r").await;
    add_space(store, "s").await;
    let metadata = json(&format!("\"{}\"", "x".repeat(MAX_METADATA_BYTES - 2)));
    let fitting = usize::try_from(MAX_PAGE_BYTES).expect("small") / MAX_METADATA_BYTES;
    for number in 0..=fitting + 1 {
        let id = format!("c{number:03}");
        store
            .add_external_call(guard("r"), new_call(&id, ExternalCallStatus::Pending))
            .await
            .expect("a new call");
        let message = new_message("s", &id, "");
        post(store, NewMessage { call: Some(id), metadata: Some(metadata.clone()), ..message }).await;
    }
    let page =
        store.shown_calls(ExternalCallFilter::default(), PageRequest::default()).await.expect("a page");
    assert_eq!(page.items.len(), fitting);
    let rest = PageRequest::after(page.next.expect("more"), 1_000);
    assert_eq!(store.shown_calls(ExternalCallFilter::default(), rest).await.expect("a page").items.len(), 2);
}

pub(crate) async fn of_two_updates_of_one_status_one_wins(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    let waits = NewMessage { status: MessageStatus::RequiresAction, ..new_message("s", "m", "form") };
    post(store, waits).await;
    let answer = |text: &str| MessageUpdate {
        expected: Some(MessageStatus::RequiresAction),
        metadata: Some(json(text)),
        status: Some(MessageStatus::Complete),
        ..update("m")
    };
    let (is_changed, message) = change(store, answer("1")).await.expect("answered");
    assert!(is_changed);
    assert_eq!(message.metadata, Some(json("1")));
    let (is_changed, found) = change(store, answer("2")).await.expect("answered");
    assert!(!is_changed);
    assert_eq!(found, message);
    assert_eq!(store.space_message("m").await.expect("the store has the message"), message);
}

pub(crate) async fn messages_are_listed_newest_first(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_space(store, "t").await;
    for number in 1..=5 {
        // The order is the order of posting, regardless of the posters' clocks.
        let message = NewMessage { created: -number, ..new_message("s", &format!("m{number}"), "") };
        assert_eq!(post(store, message).await.ordinal, number);
    }
    assert_eq!(post(store, new_message("t", "t1", "")).await.ordinal, 1);
    let list = async |request| {
        let page = store.space_messages("s", None, request).await.expect("a page");
        (page.items.into_iter().map(|message| message.ordinal).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(list(PageRequest::first(2)).await, (vec![5, 4], Some(4)));
    assert_eq!(list(PageRequest::after(4, 2)).await, (vec![3, 2], Some(2)));
    assert_eq!(list(PageRequest::after(2, 2)).await, (vec![1], None));
    // A page ends after the row that exceeds its bytes.
    for number in 6..=70 {
        let large = json(&format!("\"{}\"", "x".repeat((1 << 20) - 2)));
        post(store, NewMessage { metadata: Some(large), ..new_message("s", &format!("m{number}"), "") })
            .await;
    }
    let (ordinals, next) = list(PageRequest::default()).await;
    assert_eq!((ordinals, next), ((39..=70).rev().collect(), Some(39)));
    let error = store.space_messages("x", None, PageRequest::default()).await.expect_err("no space");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::Space, .. }), "{error}");
}

async fn found(store: &dyn GatewayStore, search: &str, request: PageRequest<i64>) -> (Vec<i64>, Option<i64>) {
    let Page { items, next } = store.space_messages("s", Some(search), request).await.expect("a page");
    (items.into_iter().map(|message| message.ordinal).collect(), next)
}

pub(crate) async fn a_search_finds_words_in_any_case(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    add_space(store, "t").await;
    let texts = [
        "Deploy the ÖBB server",
        "100% of the_servers; it's down",
        "deploy, Deploy, DEPLOY!",
        "会議は三時です",
        "the server was deployed",
        "Straße\nσίσυφος \\ ' \" * ( ) -- AND OR NEAR",
    ];
    for (number, text) in texts.iter().enumerate() {
        post(store, new_message("s", &format!("m{number}"), text)).await;
    }
    post(store, new_message("t", "other", "deploy")).await;
    let expected: &[(&str, &[i64])] = &[
        ("deploy", &[3, 1]),
        ("DEPLOY server", &[1]),
        ("server deploy", &[1]),
        ("öbb", &[1]),
        ("the", &[5, 2, 1]),
        ("the_servers", &[2]),
        ("100%", &[2]),
        ("%", &[]),
        ("_", &[]),
        ("", &[]),
        ("dep", &[]),
        ("nowhere", &[]),
        ("deploy nowhere", &[]),
        ("会議", &[4]),
        ("三", &[4]),
        ("straße", &[6]),
        ("ΣΊΣΥΦΟΣ", &[6]),
        ("and or near", &[6]),
        ("' or 1=1 --", &[]),
        ("the the THE server", &[5, 1]),
        ("it s down 100 of the servers", &[2]),
    ];
    for (search, ordinals) in expected {
        assert_eq!(found(store, search, PageRequest::default()).await.0, *ordinals, "{search:?}");
    }
    assert_eq!(found(store, "the", PageRequest::first(2)).await, (vec![5, 2], Some(2)));
    assert_eq!(found(store, "the", PageRequest::after(2, 2)).await, (vec![1], None));
}

pub(crate) async fn a_changed_text_is_found_by_its_new_words(store: &dyn GatewayStore) {
    add_space(store, "s").await;
    post(store, NewMessage { status: MessageStatus::Streaming, ..new_message("s", "m", "one two") }).await;
    let many: String = (0..100).map(|word| format!("word{word} ")).collect();
    for text in ["one two three", &many, "one"] {
        change(store, MessageUpdate { text: Some(text.to_owned()), ..update("m") }).await.expect("changed");
        for word in ["one", "two", "three", "word0", "word99"] {
            let expected: &[i64] =
                if text.split_whitespace().any(|found| found == word) { &[1] } else { &[] };
            assert_eq!(found(store, word, PageRequest::default()).await.0, expected, "{word} in {text}");
        }
    }
    // An update without a text keeps the words.
    change(store, MessageUpdate { status: Some(MessageStatus::Error), ..update("m") })
        .await
        .expect("changed");
    assert_eq!(found(store, "one", PageRequest::default()).await.0, [1]);
}
