//! Calls: waiting and pending calls, each of which ends once.

use portcullis_store::{
    Entity, ExternalCallFilter, ExternalCallStatus, PageRequest, ResultDelivery, RunStore, StoreError,
    StoredExternalCall, TOOL_RESULT, TimeOutOutcome,
};

use super::{NOW, add_run, guard, json, new_call};

async fn add(store: &dyn RunStore, id: &str, status: ExternalCallStatus) {
    store.add_external_call(guard("r"), new_call(id, status)).await.expect("a new call");
}

pub(crate) async fn a_waiting_call_is_resolved_inline(store: &dyn RunStore) {
    add_run(store, "r").await;
    add(store, "c", ExternalCallStatus::Waiting).await;
    let mut answers = store.answers();
    let resolved =
        store.resolve_external_call("c", json("{\"confirmed\":true}"), NOW + 5).await.expect("resolved");
    assert_eq!(resolved, ResultDelivery::Inline);
    assert_eq!(&*answers.recv().await.expect("an answer"), "c");
    let expected = StoredExternalCall {
        id: "c".to_owned(),
        run: "r".to_owned(),
        agent: "agent".to_owned(),
        tool: "confirmAction".to_owned(),
        arguments: json("{\"title\":\"t\"}"),
        status: ExternalCallStatus::Resolved,
        result: Some(json("{\"confirmed\":true}")),
        created: NOW,
        updated: NOW + 5,
        expires: None,
    };
    assert_eq!(store.external_call("c").await.expect("the store has the call"), expected);
    // The result came before the end of the wait, so the run takes it.
    assert_eq!(
        store.time_out_external_call("c", NOW + 6).await.expect("the store has the call"),
        TimeOutOutcome::AlreadyChanged(expected)
    );
    let inbox = store.inbox("agent", PageRequest::default()).await.expect("the store reads the page");
    assert_eq!(inbox.items, []);
}

pub(crate) async fn a_late_result_goes_to_the_inbox(store: &dyn RunStore) {
    add_run(store, "r").await;
    add(store, "late", ExternalCallStatus::Waiting).await;
    add(store, "asynchronous", ExternalCallStatus::Pending).await;
    assert_eq!(
        store.time_out_external_call("late", NOW).await.expect("the store has the call"),
        TimeOutOutcome::NowPending
    );
    for (id, ordinal) in [("late", 1), ("asynchronous", 2)] {
        let resolved =
            store.resolve_external_call(id, json("{ \"n\": 1e400 }"), NOW).await.expect("resolved");
        assert_eq!(resolved, ResultDelivery::Inbox { ordinal });
    }
    let inbox = store.inbox("agent", PageRequest::default()).await.expect("the store reads the page").items;
    let entries: Vec<(&str, &str)> = inbox.iter().map(|entry| (&*entry.kind, entry.body.as_str())).collect();
    let body = |id: &str| {
        format!(r#"{{"callId":"{id}","runId":"r","toolName":"confirmAction","result":{{ "n": 1e400 }}}}"#)
    };
    assert_eq!(entries, [(TOOL_RESULT, &*body("late")), (TOOL_RESULT, &*body("asynchronous"))]);
}

pub(crate) async fn a_call_is_closed_once(store: &dyn RunStore) {
    add_run(store, "r").await;
    for (id, status) in [
        ("w", ExternalCallStatus::Waiting),
        ("p", ExternalCallStatus::Pending),
        ("c", ExternalCallStatus::Waiting),
    ] {
        add(store, id, status).await;
    }
    assert!(store.cancel_external_call("c", NOW).await.expect("the store has the call"));
    assert!(!store.cancel_external_call("c", NOW).await.expect("the store has the call"));
    for id in ["w", "p"] {
        store.resolve_external_call(id, json("1"), NOW).await.expect("resolved");
        assert!(!store.cancel_external_call(id, NOW).await.expect("the store has the call"));
    }
    for (id, expected) in [
        ("w", ExternalCallStatus::Resolved),
        ("p", ExternalCallStatus::Resolved),
        ("c", ExternalCallStatus::Cancelled),
    ] {
        let error = store.resolve_external_call(id, json("2"), NOW).await.expect_err("closed");
        assert!(matches!(error, StoreError::CallClosed { status, .. } if status == expected), "{error}");
    }
    assert_eq!(store.external_call("p").await.expect("the store has the call").result, Some(json("1")));
    let inbox = store.inbox("agent", PageRequest::default()).await.expect("the store reads the page");
    assert_eq!(inbox.items.len(), 1, "one result, one entry");
    let error = store
        .add_external_call(guard("r"), new_call("w", ExternalCallStatus::Waiting))
        .await
        .expect_err("taken");
    assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Call, .. }), "{error}");
    let error = store
        .add_external_call(guard("r"), new_call("x", ExternalCallStatus::Expired))
        .await
        .expect_err("closed");
    assert!(matches!(error, StoreError::CallClosed { status: ExternalCallStatus::Expired, .. }), "{error}");
    for error in [
        store.external_call("x").await.expect_err("no call"),
        store.resolve_external_call("x", json("1"), NOW).await.map(|_| ()).expect_err("no call"),
        store.time_out_external_call("x", NOW).await.map(|_| ()).expect_err("no call"),
        store.cancel_external_call("x", NOW).await.map(|_| ()).expect_err("no call"),
    ] {
        assert!(matches!(error, StoreError::NotFound { entity: Entity::Call, .. }), "{error}");
    }
}

pub(crate) async fn calls_expire(store: &dyn RunStore) {
    add_run(store, "r").await;
    for (id, status, expires) in [
        ("c1", ExternalCallStatus::Waiting, Some(NOW + 1)),
        ("c2", ExternalCallStatus::Pending, Some(NOW + 2)),
        ("c3", ExternalCallStatus::Pending, Some(NOW + 9)),
        ("c4", ExternalCallStatus::Pending, None),
    ] {
        let call = portcullis_store::NewExternalCall { expires, ..new_call(id, status) };
        store.add_external_call(guard("r"), call).await.expect("a new call");
    }
    // A result that comes too late is refused, even before the sweep.
    let error = store.resolve_external_call("c1", json("1"), NOW + 1).await.expect_err("too late");
    assert!(matches!(error, StoreError::CallClosed { status: ExternalCallStatus::Expired, .. }), "{error}");
    assert_eq!(store.expire_external_calls(NOW, 10).await.expect("swept"), [""; 0]);
    assert_eq!(store.expire_external_calls(NOW + 2, 1).await.expect("swept"), ["c1"]);
    assert_eq!(store.expire_external_calls(NOW + 2, 10).await.expect("swept"), ["c2"]);
    assert_eq!(store.expire_external_calls(NOW + 2, 10).await.expect("swept"), [""; 0]);
    assert_eq!(
        store.external_call("c2").await.expect("the store has the call").status,
        ExternalCallStatus::Expired
    );
    let error = store.resolve_external_call("c2", json("1"), NOW).await.expect_err("expired");
    assert!(matches!(error, StoreError::CallClosed { status: ExternalCallStatus::Expired, .. }), "{error}");
    let early = store.resolve_external_call("c3", json("1"), NOW + 8).await.expect("in time");
    assert_eq!(early, ResultDelivery::Inbox { ordinal: 1 });
}

pub(crate) async fn calls_are_listed(store: &dyn RunStore) {
    for run in ["r", "s"] {
        add_run(store, run).await;
        for (id, status) in [("1", ExternalCallStatus::Waiting), ("2", ExternalCallStatus::Pending)] {
            store
                .add_external_call(guard(run), new_call(&format!("{run}{id}"), status))
                .await
                .expect("a new call");
        }
    }
    let list = async |filter: ExternalCallFilter, request| {
        let page = store.external_calls(filter, request).await.expect("a page");
        (page.items.into_iter().map(|call| call.id).collect::<Vec<_>>(), page.next)
    };
    let (ids, next) = list(ExternalCallFilter::default(), PageRequest::first(3)).await;
    assert_eq!(ids, ["s2", "s1", "r2"]);
    let (ids, next) = list(ExternalCallFilter::default(), PageRequest::after(next.expect("more"), 3)).await;
    assert_eq!((ids, next), (vec!["r1".to_owned()], None));
    let run = Some("r".to_owned());
    let filter = ExternalCallFilter {
        run,
        agent: Some("agent".to_owned()),
        status: Some(ExternalCallStatus::Waiting),
    };
    assert_eq!(list(filter.clone(), PageRequest::default()).await.0, ["r1"]);
    let other = ExternalCallFilter { agent: Some("x".to_owned()), ..filter };
    assert_eq!(list(other, PageRequest::default()).await.0, [""; 0]);
}
