//! Limits: an excess is an error that names the value, its size and the limit, and nothing is written.

use portcullis_store::{
    CallFinish, ExternalCallStatus, Json, LimitError, NewStartedCall, PageRequest, RunFilter, RunStore,
    StoreError,
    limits::{
        MAX_ARGUMENTS_BYTES, MAX_COMMIT_BYTES, MAX_COMMIT_MESSAGES, MAX_LABELS, MAX_NAME_BYTES,
        MAX_OPEN_CALLS, MAX_PAYLOAD_BYTES, MAX_TEXT_BYTES,
    },
};

use super::{NOW, add_run, commit, guard, json, new_call, new_run};

/// A JSON text of this many bytes.
pub(crate) fn sized(bytes: usize) -> Json {
    json(&format!("\"{}\"", "x".repeat(bytes - 2)))
}

#[track_caller]
pub(crate) fn assert_too_large<T: std::fmt::Debug>(result: Result<T, StoreError>, field: &str, limit: usize) {
    let error = result.expect_err("over the limit");
    let expected = |found: &LimitError| matches!(found, LimitError::TooLarge { field: p, limit: l, .. } if *p == field && *l == limit);
    assert!(matches!(&error, StoreError::Limit(found) if expected(found)), "{error}");
    assert!(error.to_string().contains(&limit.to_string()) && error.to_string().contains(field), "{error}");
}

pub(crate) async fn values_over_a_limit_are_refused(store: &dyn RunStore) {
    add_run(store, "r").await;
    let mut step = commit("r", 1);
    step.messages = vec![sized(MAX_PAYLOAD_BYTES)];
    store.commit_step(step.clone()).await.expect("the largest message");
    step.version = 2;
    step.messages = vec![sized(MAX_PAYLOAD_BYTES + 1)];
    assert_too_large(store.commit_step(step.clone()).await, "a message", MAX_PAYLOAD_BYTES);
    step.messages = vec![sized(MAX_PAYLOAD_BYTES); 4];
    assert_too_large(store.commit_step(step.clone()).await, "a step with its messages", MAX_COMMIT_BYTES);
    step.messages = vec![json("1"); MAX_COMMIT_MESSAGES + 1];
    let error = store.commit_step(step.clone()).await.expect_err("too many");
    assert!(matches!(error, StoreError::Limit(LimitError::TooMany { .. })), "{error}");
    step.messages.clear();
    step.step.summary = "x".repeat(MAX_TEXT_BYTES + 1);
    assert_too_large(store.commit_step(step.clone()).await, "the summary of the step", MAX_TEXT_BYTES);
    let mut step = commit("r", 2);
    step.state = sized(MAX_PAYLOAD_BYTES + 1);
    assert_too_large(store.commit_step(step).await, "the state of the run", MAX_PAYLOAD_BYTES);
    let mut step = commit("r", 2);
    step.labels = (0..=MAX_LABELS).map(|label| label.to_string()).collect();
    let error = store.commit_step(step).await.expect_err("too many");
    assert!(matches!(error, StoreError::Limit(LimitError::TooMany { .. })), "{error}");
    assert_eq!(store.run("r").await.expect("the store has the run").summary.version, 2);

    let mut call = new_call("c", ExternalCallStatus::Waiting);
    call.arguments = sized(MAX_ARGUMENTS_BYTES + 1);
    assert_too_large(
        store.add_external_call(guard("r"), call.clone()).await,
        "the arguments",
        MAX_ARGUMENTS_BYTES,
    );
    store
        .add_external_call(guard("r"), new_call("c", ExternalCallStatus::Pending))
        .await
        .expect("a new call");
    let result = sized(MAX_PAYLOAD_BYTES + 1);
    assert_too_large(
        store.resolve_external_call("c", result.clone(), NOW).await,
        "the result",
        MAX_PAYLOAD_BYTES,
    );
    store
        .resolve_external_call("c", sized(MAX_PAYLOAD_BYTES), NOW)
        .await
        .expect("the largest result fits into an inbox");
    let (tool, arguments) = ("t".to_owned(), call.arguments);
    let started =
        NewStartedCall { call: "c".to_owned(), tool, arguments, may_repeat: true, labels: Vec::new() };
    assert_too_large(store.start_call(guard("r"), started).await, "the arguments", MAX_ARGUMENTS_BYTES);
    let end = CallFinish { call: "c".to_owned(), result, labels: Vec::new() };
    assert_too_large(store.finish_call(guard("r"), end).await, "the result", MAX_PAYLOAD_BYTES);
}

pub(crate) async fn names_are_checked(store: &dyn RunStore) {
    for id in ["", "a\nb", "a\0b", "\u{7f}"] {
        let error = store.create_run(new_run(id)).await.expect_err("no name");
        assert!(matches!(error, StoreError::Name { field: "the id of the run" }), "{error}");
    }
    let longest = "ü".repeat(MAX_NAME_BYTES / 2);
    add_run(store, &longest).await;
    assert_too_large(
        store.create_run(new_run(&format!("{longest}x"))).await,
        "the id of the run",
        MAX_NAME_BYTES,
    );
    // An id to look up is not stored, so it needs no check. It must still not cause an error of the database.
    let error = store.run("a\0b").await.expect_err("no run");
    assert!(matches!(error, StoreError::NotFound { .. } | StoreError::Nul { .. }), "{error}");
    let filter = RunFilter { agent: Some("a\0b".to_owned()), ..RunFilter::default() };
    match store.runs(filter, PageRequest::default()).await {
        Ok(page) => assert_eq!(page.items, []),
        Err(error) => assert!(matches!(error, StoreError::Nul { .. }), "{error}"),
    }
}

pub(crate) async fn the_number_of_open_calls_is_bounded(store: &dyn RunStore) {
    add_run(store, "r").await;
    let add = async |number: i64| {
        store.add_external_call(guard("r"), new_call(&number.to_string(), ExternalCallStatus::Pending)).await
    };
    let added = futures_util::future::join_all((0..MAX_OPEN_CALLS).map(&add)).await;
    added.into_iter().for_each(|added| added.expect("a new call"));
    let error = add(MAX_OPEN_CALLS).await.expect_err("too many");
    assert!(matches!(error, StoreError::Limit(LimitError::TooMany { limit: MAX_OPEN_CALLS, .. })), "{error}");
    store.cancel_external_call("0", NOW).await.expect("cancelled");
    add(MAX_OPEN_CALLS).await.expect("room");
}
