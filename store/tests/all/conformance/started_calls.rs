//! Started calls: a resumed run distinguishes `unknown` from `finished`.

use portcullis_store::{CallFinish, CallStart, Entity, NewStartedCall, PageRequest, RunStore, StoreError};

use super::{add_run, guard, json};

fn started(call: &str, may_repeat: bool) -> NewStartedCall {
    NewStartedCall {
        call: call.to_owned(),
        tool: "t".to_owned(),
        arguments: json("{}"),
        may_repeat,
        labels: vec!["vault".to_owned()],
    }
}

fn end(call: &str) -> CallFinish {
    CallFinish { call: call.to_owned(), result: json("\"r\""), labels: vec!["l".to_owned()] }
}

pub(crate) async fn a_resumed_run_knows_what_has_finished(store: &dyn RunStore) {
    add_run(store, "r").await;
    let begin = async |call: &str, may_repeat| store.start_call(guard("r"), started(call, may_repeat)).await;
    for (call, may_repeat) in [("finished", false), ("unknown", false), ("repeated", true)] {
        assert_eq!(begin(call, may_repeat).await.expect("new"), CallStart::Begun { attempt: 1 });
    }
    store.finish_call(guard("r"), end("finished")).await.expect("finished");

    let finished = begin("finished", true).await.expect("known");
    let CallStart::Finished(stored) = finished else { panic!("{finished:?}") };
    assert_eq!((stored.result, stored.labels), (Some(json("\"r\"")), vec!["l".to_owned()]));
    // The first record of a call decides whether it may be repeated.
    let unknown = begin("unknown", true).await.expect("known");
    assert!(matches!(&unknown, CallStart::Unknown(stored) if stored.finished.is_none()), "{unknown:?}");
    assert_eq!(begin("repeated", false).await.expect("known"), CallStart::Begun { attempt: 2 });
    store.finish_call(guard("r"), end("repeated")).await.expect("finished");

    let error = store.finish_call(guard("r"), end("repeated")).await.expect_err("finished before");
    assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::StartedCall, .. }), "{error}");
    let error = store.finish_call(guard("r"), end("x")).await.expect_err("not begun");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::StartedCall, .. }), "{error}");
    let first = store.started_calls("r", PageRequest::first(2)).await.expect("listed");
    let second =
        store.started_calls("r", PageRequest::after(first.next.expect("more"), 2)).await.expect("listed");
    let calls: Vec<_> =
        first.items.into_iter().chain(second.items).map(|started| (started.call, started.attempts)).collect();
    let expected = [("finished", 1), ("unknown", 1), ("repeated", 2)];
    assert_eq!(calls, expected.map(|(call, attempts)| (call.to_owned(), attempts)));
}

pub(crate) async fn started_calls_need_the_lease(store: &dyn RunStore) {
    add_run(store, "r").await;
    store.start_call(guard("r"), started("c", true)).await.expect("new");
    store.release_lease("r", &guard("r").owner).await.expect("released");
    for error in [
        store.start_call(guard("r"), started("c", true)).await.expect_err("no lease"),
        store.finish_call(guard("r"), end("c")).await.expect_err("no lease"),
    ] {
        assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
    }
}
