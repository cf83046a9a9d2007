//! Effects: a resumed run knows `unknown` from `finished`.

use portcullis_store::{EffectBegin, EffectEnd, Entity, NewEffect, PageRequest, RunStore, StoreError};

use super::{add_run, guard, json};

fn effect(call: &str, may_repeat: bool) -> NewEffect {
    NewEffect {
        call: call.to_owned(),
        tool: "t".to_owned(),
        arguments: json("{}"),
        may_repeat,
        labels: vec!["vault".to_owned()],
    }
}

fn end(call: &str) -> EffectEnd {
    EffectEnd { call: call.to_owned(), result: json("\"r\""), labels: vec!["l".to_owned()] }
}

pub(crate) async fn a_resumed_run_knows_what_has_finished(store: &dyn RunStore) {
    add_run(store, "r").await;
    let begin = async |call: &str, may_repeat| store.begin_effect(guard("r"), effect(call, may_repeat)).await;
    for (call, may_repeat) in [("finished", false), ("unknown", false), ("repeated", true)] {
        assert_eq!(begin(call, may_repeat).await.expect("new"), EffectBegin::Begun { attempt: 1 });
    }
    store.finish_effect(guard("r"), end("finished")).await.expect("finished");

    let finished = begin("finished", true).await.expect("known");
    let EffectBegin::Finished(stored) = finished else { panic!("{finished:?}") };
    assert_eq!((stored.result, stored.labels), (Some(json("\"r\"")), vec!["l".to_owned()]));
    // The first writing of a call says whether it may be repeated.
    let unknown = begin("unknown", true).await.expect("known");
    assert!(matches!(&unknown, EffectBegin::Unknown(stored) if stored.finished.is_none()), "{unknown:?}");
    assert_eq!(begin("repeated", false).await.expect("known"), EffectBegin::Begun { attempt: 2 });
    store.finish_effect(guard("r"), end("repeated")).await.expect("finished");

    let error = store.finish_effect(guard("r"), end("repeated")).await.expect_err("finished before");
    assert!(matches!(error, StoreError::AlreadyExists { what: Entity::Effect, .. }), "{error}");
    let error = store.finish_effect(guard("r"), end("x")).await.expect_err("not begun");
    assert!(matches!(error, StoreError::NotFound { what: Entity::Effect, .. }), "{error}");
    let first = store.effects("r", PageRequest::first(2)).await.expect("listed");
    let second = store.effects("r", PageRequest::after(first.next.expect("more"), 2)).await.expect("listed");
    let calls: Vec<_> =
        first.items.into_iter().chain(second.items).map(|effect| (effect.call, effect.attempts)).collect();
    let expected = [("finished", 1), ("unknown", 1), ("repeated", 2)];
    assert_eq!(calls, expected.map(|(call, attempts)| (call.to_owned(), attempts)));
}

pub(crate) async fn effects_need_the_lease(store: &dyn RunStore) {
    add_run(store, "r").await;
    store.begin_effect(guard("r"), effect("c", true)).await.expect("new");
    store.release_lease("r", &guard("r").owner).await.expect("released");
    for error in [
        store.begin_effect(guard("r"), effect("c", true)).await.expect_err("no lease"),
        store.finish_effect(guard("r"), end("c")).await.expect_err("no lease"),
    ] {
        assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
    }
}
