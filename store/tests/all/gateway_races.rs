//! Races of two gateways on one store: a due plan, a form, an inbox, the order of events, and changes with
//! many locks.

use std::{collections::BTreeSet, sync::Arc};

use portcullis_store::{
    Change, ChangeResult, GatewayStore, InboxSpan, MessageStatus, MessageUpdate, NewMessage, NewNote, NewRun,
    NoteKind, PageRequest, StoreError,
};

use crate::{
    conformance::{
        NOW,
        builders::{add_space, new_entry, new_event, new_message, post},
        json, new_run,
    },
    postgres_server::Server,
    races::spawn,
    sqlite::{assert_intact, block_on, database_path, open_gateway},
};

/// The number of times that each race is run.
const ROUNDS: i64 = 100;

type Stores = [Arc<dyn GatewayStore>; 2];

/// Runs an operation in both stores concurrently.
async fn both<T: Send + 'static, F: Future<Output = T> + Send + 'static>(
    stores: &Stores,
    action: impl Fn(Arc<dyn GatewayStore>, &'static str) -> F,
) -> (T, T) {
    let [first, second] = stores.clone();
    futures_util::future::join(spawn(action(first, "first")), spawn(action(second, "second"))).await
}

async fn a_due_plan_is_taken_once(stores: &Stores) {
    let store = &stores[0];
    for round in 0..ROUNDS {
        let plans = (0..3)
            .map(|plan| NewNote { id: plan.to_string(), body: json("1"), due: Some(NOW), every: None })
            .collect();
        store.set_notes("plans", NoteKind::Plan, plans, NOW).await.expect("set");
        let (first, second) =
            both(stores, async |store, _| store.take_due_plans(NOW, 2).await.expect("taken")).await;
        let taken: Vec<String> = first.into_iter().chain(second).map(|plan| plan.id).collect();
        let different: BTreeSet<&String> = taken.iter().collect();
        assert_eq!((taken.len(), different.len()), (3, 3), "round {round}: {taken:?}");
    }
    let entries = store.inbox("plans", PageRequest::default()).await.expect("the store reads the page").items;
    assert_eq!(i64::try_from(entries.len()).expect("few"), 3 * ROUNDS);
}

async fn a_form_is_answered_once(stores: &Stores) {
    let store = &stores[0];
    add_space(&**store, "forms").await;
    for round in 0..ROUNDS {
        let id = format!("form{round}");
        let waits = NewMessage { status: MessageStatus::RequiresAction, ..new_message("forms", &id, "") };
        post(&**store, waits).await;
        let answers = both(stores, |store, who| {
            let update = MessageUpdate {
                id: id.clone(),
                expected: Some(MessageStatus::RequiresAction),
                text: Some(who.to_owned()),
                status: Some(MessageStatus::Complete),
                metadata: None,
                updated: NOW,
            };
            async move { (who, store.apply(vec![Change::UpdateMessage(update)]).await.expect("applied")) }
        });
        let (first, second) = answers.await;
        let winners: Vec<&str> = [first, second]
            .into_iter()
            .filter(|(_, applied)| matches!(&**applied, [ChangeResult::Updated { is_changed: true, .. }]))
            .map(|(who, _)| who)
            .collect();
        let message = store.space_message(&id).await.expect("the store has the message");
        assert_eq!(winners, [&*message.text], "one answer is accepted");
    }
}

async fn an_entry_begins_one_run(stores: &Stores) {
    let store = &stores[0];
    for round in 1..=ROUNDS {
        store.push_inbox(new_entry("wakes", "1")).await.expect("sent");
        let begins = both(stores, |store, who| {
            let span = InboxSpan { agent: "wakes".to_owned(), first: round, last: round };
            let run = NewRun { consumed_inbox: Some(span), ..new_run(&format!("{who}{round}")) };
            async move { store.create_run(run).await }
        });
        let (first, second) = begins.await;
        let refused = [first, second].into_iter().filter_map(Result::err).collect::<Vec<_>>();
        assert!(matches!(&*refused, [StoreError::InboxConsumed { .. }]), "{refused:?}");
    }
}

/// A reader that asks for the events after the last one that it has seen gets each event, while two stores append.
async fn events_become_visible_in_order(stores: &Stores) {
    let before = stores[0].event_bounds().await.expect("read").newest;
    let total = ROUNDS * 4;
    let append = |store: Arc<dyn GatewayStore>, name: &'static str| {
        spawn(async move {
            for round in 0..total / 2 {
                // Some transactions take longer between their event and their commit.
                let mut changes = vec![Change::AppendEvent(new_event(&["order", name], &round.to_string()))];
                changes.extend((0..round % 5).map(|_| Change::PushInbox(new_entry(name, "1"))));
                store.apply(changes).await.expect("applied");
            }
        })
    };
    let reader = Arc::clone(&stores[1]);
    let read = spawn(async move {
        let (mut last, mut seen) = (before, 0);
        while seen < total {
            let page = reader.events(Some("order"), PageRequest::after(last, 100)).await.expect("a page");
            for event in page.items {
                assert_eq!(event.id, last + 1, "no event was passed over");
                last = event.id;
                seen += 1;
            }
            tokio::task::yield_now().await;
        }
    });
    let [first, second] = stores.clone();
    futures_util::future::join3(append(first, "x"), append(second, "y"), read).await;
}

/// Changes that lock the same rows in opposite orders wait for each other, and none fails.
async fn opposite_orders_do_not_block(stores: &Stores) {
    for space in ["left", "right"] {
        add_space(&*stores[0], space).await;
    }
    let applied = both(stores, |store, who| async move {
        for round in 0..ROUNDS {
            let mut spaces = ["left", "right"];
            if who == "second" {
                spaces.reverse();
            }
            let mut changes = Vec::new();
            for space in spaces {
                let id = format!("{who}{space}{round}");
                changes.push(Change::PostMessage(new_message(space, &id, "hello")));
                changes.push(Change::PushInbox(new_entry(space, "1")));
            }
            changes.push(Change::AppendEvent(new_event(&["opposite"], "1")));
            store.apply(changes).await.expect("applied");
        }
    });
    applied.await;
    for space in ["left", "right"] {
        assert_eq!(stores[0].space(space).await.expect("the store has the space").messages, 2 * ROUNDS);
    }
}

async fn all(stores: &Stores) {
    a_due_plan_is_taken_once(stores).await;
    a_form_is_answered_once(stores).await;
    an_entry_begins_one_run(stores).await;
    events_become_visible_in_order(stores).await;
    opposite_orders_do_not_block(stores).await;
}

#[test]
fn gateways_on_one_file_agree() {
    let (_folder, path) = database_path();
    block_on(async {
        let stores = [open_gateway(&path).await, open_gateway(&path).await];
        all(&stores).await;
        for store in stores {
            store.close().await;
        }
    });
    assert_intact(&path);
}

#[test]
fn gateways_on_one_server_agree() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        let open = async || portcullis_store::open_gateway(&url).await.expect("opens");
        all(&[open().await, open().await]).await;
    });
}
