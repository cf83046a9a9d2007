//! Notes of agents, and plans that become due.

use portcullis_store::{
    DuePlan, GatewayStore, NewNote, Note, NoteKind, PLAN_ENTRY, PageRequest, StoreError,
    limits::MAX_UNREAD_ENTRIES,
};

use super::{NOW, builders::new_entry, json};

fn note(id: &str, body: &str) -> NewNote {
    NewNote { id: id.to_owned(), body: json(body), due: None, every: None }
}

fn plan(id: &str, due: i64, every: Option<i64>) -> NewNote {
    NewNote { due: Some(due), every, ..note(id, "{\"do\":1e400}") }
}

async fn ids(store: &dyn GatewayStore, agent: &str, kind: NoteKind) -> Vec<String> {
    let page = store.notes(agent, kind, PageRequest::default()).await.expect("a page");
    page.items.into_iter().map(|note| note.id).collect()
}

pub(crate) async fn notes_are_set_replaced_listed_and_removed(store: &dyn GatewayStore) {
    let goals = vec![note("g2", "1"), note("g1", "2")];
    store.set_notes("a", NoteKind::Goal, goals, 5).await.expect("set");
    store.set_notes("a", NoteKind::Memory, vec![note("g1", "3")], 5).await.expect("set");
    store.set_notes("b", NoteKind::Goal, vec![note("g1", "4")], 5).await.expect("set");
    store.set_notes("a", NoteKind::Goal, vec![note("g0", "5"), note("g2", "6")], 7).await.expect("set");
    assert_eq!(ids(store, "a", NoteKind::Goal).await, ["g1", "g2", "g0"]);
    let first = store.notes("a", NoteKind::Goal, PageRequest::first(2)).await.expect("a page");
    let kind = NoteKind::Goal;
    let expected =
        Note { id: "g2".to_owned(), kind, body: json("6"), due: None, every: None, created: 5, updated: 7 };
    assert_eq!(first.items[1], expected);
    let rest = PageRequest::after(first.next.expect("more"), 2);
    let rest = store.notes("a", NoteKind::Goal, rest).await.expect("a page");
    assert_eq!((rest.items.len(), &*rest.items[0].id, rest.next), (1, "g0", None));
    let gone = ["g1", "g2", "x"].map(str::to_owned).to_vec();
    assert_eq!(store.remove_notes("a", NoteKind::Goal, gone).await.expect("removed"), 2);
    assert_eq!(ids(store, "a", NoteKind::Goal).await, ["g0"]);
    assert_eq!(ids(store, "a", NoteKind::Memory).await, ["g1"]);
    assert_eq!(ids(store, "b", NoteKind::Goal).await, ["g1"]);
    let error = store.set_notes("a", NoteKind::Goal, vec![plan("g", 1, None)], 1).await.expect_err("no plan");
    assert!(matches!(error, StoreError::Invalid { field: "the due time of the note", .. }), "{error}");
    let error = store
        .set_notes("a", NoteKind::Plan, vec![plan("p", 1, None), plan("q", 1, Some(999))], 1)
        .await
        .expect_err("too often");
    assert!(matches!(error, StoreError::Invalid { field: "the interval of the plan", .. }), "{error}");
    assert_eq!(ids(store, "a", NoteKind::Plan).await, [""; 0], "all or none");
}

pub(crate) async fn due_plans_go_to_inboxes_once(store: &dyn GatewayStore) {
    let plans =
        vec![plan("once", 1_000, None), plan("often", 2_000, Some(5_000)), plan("later", 9_000, None)];
    store.set_notes("a", NoteKind::Plan, plans, 1).await.expect("set");
    store
        .set_notes("b", NoteKind::Plan, vec![plan("p", 1_500, None), note("never", "1")], 1)
        .await
        .expect("set");
    assert_eq!(store.take_due_plans(999, 9).await.expect("none"), []);
    let due = |agent: &str, id: &str, due, next, ordinal| DuePlan {
        agent: agent.to_owned(),
        id: id.to_owned(),
        due,
        next,
        ordinal: Some(ordinal),
    };
    let taken = store.take_due_plans(8_000, 2).await.expect("taken");
    assert_eq!(taken, [due("a", "once", 1_000, None, 1), due("b", "p", 1_500, None, 1)]);
    let taken = store.take_due_plans(8_000, 2).await.expect("taken");
    assert_eq!(taken, [due("a", "often", 2_000, Some(12_000), 2)], "the time of 7,000 was missed");
    assert_eq!(store.take_due_plans(8_000, 2).await.expect("none"), []);
    let entries = store.inbox("a", PageRequest::default()).await.expect("the store reads the page").items;
    let entries: Vec<(&str, &str, i64)> =
        entries.iter().map(|entry| (&*entry.kind, entry.body.as_str(), entry.created)).collect();
    assert_eq!(
        entries,
        [
            (PLAN_ENTRY, r#"{"planId":"once","due":1000,"plan":{"do":1e400}}"#, 8_000),
            (PLAN_ENTRY, r#"{"planId":"often","due":2000,"plan":{"do":1e400}}"#, 8_000)
        ]
    );
    let plans = store
        .notes("a", NoteKind::Plan, PageRequest::default())
        .await
        .expect("the store reads the page")
        .items;
    let times: Vec<(&str, Option<i64>)> = plans.iter().map(|plan| (&*plan.id, plan.due)).collect();
    assert_eq!(times, [("later", Some(9_000)), ("often", Some(12_000)), ("once", None)]);
    assert_eq!(store.take_due_plans(12_000, 9).await.expect("taken").len(), 2);
}

pub(crate) async fn a_full_inbox_misses_a_plan_and_stops_no_other(store: &dyn GatewayStore) {
    let places: Vec<i64> = (0..MAX_UNREAD_ENTRIES).collect();
    for group in places.chunks(250) {
        let sent = group.iter().map(|_| store.push_inbox(new_entry("a", "1")));
        futures_util::future::join_all(sent).await.into_iter().for_each(|sent| assert!(sent.is_ok()));
    }
    store.set_notes("a", NoteKind::Plan, vec![plan("p", 1, Some(1_000))], 1).await.expect("set");
    store.set_notes("b", NoteKind::Plan, vec![plan("p", 2, None)], 1).await.expect("set");
    let taken = store.take_due_plans(NOW, 9).await.expect("taken");
    let taken: Vec<(&str, Option<i64>, Option<i64>)> =
        taken.iter().map(|plan| (&*plan.agent, plan.ordinal, plan.next)).collect();
    assert_eq!(taken, [("a", None, Some(1_001)), ("b", Some(1), None)]);
    store.consume_inbox("a", 1, NOW).await.expect("consumed");
    let taken = store.take_due_plans(1_001, 9).await.expect("taken");
    assert_eq!(taken[0].ordinal, Some(MAX_UNREAD_ENTRIES + 1), "no ordinal is lost");
}
