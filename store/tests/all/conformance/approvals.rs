//! Approvals: an approval takes one answer, with the right hash, before it expires.

use portcullis_store::{
    ApprovalDecision, ApprovalFilter, ApprovalStatus, Entity, NewApprovalRequest, PageRequest, RunStore,
    StoreError, StoredAnswer,
};

use super::{NOW, add_run, guard, json};

fn question(id: &str, expires: Option<i64>) -> NewApprovalRequest {
    NewApprovalRequest {
        id: id.to_owned(),
        call: "c".to_owned(),
        tool: "t".to_owned(),
        question: "Delete\n`x`?".to_owned(),
        hash: "h1".to_owned(),
        expires,
    }
}

fn answer(decision: ApprovalDecision, decided: i64) -> StoredAnswer {
    let edited_arguments = (decision == ApprovalDecision::Approve).then(|| json("{\"edited\":1}"));
    StoredAnswer {
        decision,
        by: "ada".to_owned(),
        via: "terminal".to_owned(),
        edited_arguments,
        reason: Some("it is late".to_owned()),
        decided,
    }
}

pub(crate) async fn a_question_is_answered_once(store: &dyn RunStore) {
    add_run(store, "r").await;
    for (id, decision, status) in [
        ("a", ApprovalDecision::Approve, ApprovalStatus::Approved),
        ("d", ApprovalDecision::Deny, ApprovalStatus::Denied),
    ] {
        store.add_approval(guard("r"), question(id, None)).await.expect("asked");
        let waiting = store.approval(id).await.expect("the store has the question");
        assert_eq!((waiting.status, waiting.answer, waiting.created), (ApprovalStatus::Waiting, None, NOW));
        let decided = store.answer_approval(id, "h1", answer(decision, 7)).await.expect("decided");
        assert_eq!((decided.status, &decided.answer), (status, &Some(answer(decision, 7))));
        assert_eq!((&decided.request, &*decided.run), (&question(id, None), "r"));
        assert_eq!(store.approval(id).await.expect("the store has the question"), decided);
        let error =
            store.answer_approval(id, "h1", answer(ApprovalDecision::Deny, 8)).await.expect_err("decided");
        assert!(
            matches!(error, StoreError::ApprovalClosed { status: found, .. } if found == status),
            "{error}"
        );
        let error = store.add_approval(guard("r"), question(id, None)).await.expect_err("taken");
        assert!(matches!(error, StoreError::AlreadyExists { entity: Entity::Approval, .. }), "{error}");
    }
}

pub(crate) async fn an_answer_names_the_hash(store: &dyn RunStore) {
    add_run(store, "r").await;
    store.add_approval(guard("r"), question("a", None)).await.expect("asked");
    let error = store
        .answer_approval("a", "h2", answer(ApprovalDecision::Approve, 7))
        .await
        .expect_err("other content");
    assert!(matches!(error, StoreError::OtherHash { .. }), "{error}");
    assert_eq!(
        store.approval("a").await.expect("the store has the question").status,
        ApprovalStatus::Waiting
    );
    let error =
        store.answer_approval("x", "h1", answer(ApprovalDecision::Deny, 7)).await.expect_err("no question");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::Approval, .. }), "{error}");
}

pub(crate) async fn questions_expire_and_are_listed(store: &dyn RunStore) {
    add_run(store, "r").await;
    for (id, expires) in [("a1", Some(5)), ("a2", Some(6)), ("a3", None)] {
        store.add_approval(guard("r"), question(id, expires)).await.expect("asked");
    }
    let error =
        store.answer_approval("a1", "h1", answer(ApprovalDecision::Approve, 5)).await.expect_err("too late");
    assert!(matches!(error, StoreError::ApprovalClosed { status: ApprovalStatus::Expired, .. }), "{error}");
    store.answer_approval("a2", "h1", answer(ApprovalDecision::Approve, 5)).await.expect("in time");
    assert_eq!(store.expire_approvals(9, 10).await.expect("swept"), ["a1"]);
    let list = async |filter| {
        let page = store.approvals(filter, PageRequest::default()).await.expect("a page");
        page.items
            .into_iter()
            .map(|approval| (approval.request.id, approval.status.as_str()))
            .collect::<Vec<_>>()
    };
    let row = |id: &str, status| (id.to_owned(), status);
    let all = [row("a3", "waiting"), row("a2", "approved"), row("a1", "expired")];
    assert_eq!(list(ApprovalFilter::default()).await, all);
    let (run, status) = (Some("r".to_owned()), Some(ApprovalStatus::Waiting));
    assert_eq!(list(ApprovalFilter { run, status }).await, [row("a3", "waiting")]);
}
