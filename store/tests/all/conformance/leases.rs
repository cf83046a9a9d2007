//! Leases: one owner drives a run.

use portcullis_store::{Entity, LeaseGuard, RunLease, RunStatus, RunStore, StoreError};

use super::{NOW, OWNER, UNTIL, add_run, commit, guard, json, new_run};

fn of_other(now: i64) -> LeaseGuard {
    LeaseGuard { run: "r".to_owned(), owner: "process 2".to_owned(), now }
}

pub(crate) async fn one_owner_has_the_lease(store: &dyn RunStore) {
    let error = store.acquire_lease(guard("r"), 5).await.expect_err("no run");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::Run, .. }), "{error}");
    add_run(store, "r").await;
    let error = store.acquire_lease(of_other(NOW), UNTIL).await.expect_err("taken");
    assert!(matches!(&error, StoreError::Leased { owner, until: UNTIL, .. } if owner == OWNER), "{error}");
    let again = store.acquire_lease(guard("r"), UNTIL + 1).await.expect("its own");
    let expected = RunLease {
        run: "r".to_owned(),
        owner: OWNER.to_owned(),
        until: UNTIL + 1,
        version: 1,
        cancel_requested_at: None,
    };
    assert_eq!(again, expected);
    store.release_lease("r", "process 2").await.expect("without effect");
    let error = store.acquire_lease(of_other(NOW), UNTIL).await.expect_err("still taken");
    assert!(matches!(error, StoreError::Leased { .. }), "{error}");
    store.release_lease("r", OWNER).await.expect("released");
    store.acquire_lease(of_other(NOW), UNTIL).await.expect("free");
    let error = store.commit_step(commit("r", 1)).await.expect_err("not the owner");
    assert!(matches!(&error, StoreError::LeaseLost { owner, .. } if owner == OWNER), "{error}");
}

pub(crate) async fn a_lease_ends(store: &dyn RunStore) {
    let mut new = new_run("r");
    new.lease = Some((OWNER.to_owned(), NOW));
    store.create_run(new).await.expect("a new run");
    // At the time of expiry the owner has already lost the lease, because another owner can take it.
    let error = store.commit_step(commit("r", 1)).await.expect_err("expired");
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
    let error = store.renew_lease(guard("r"), UNTIL).await.expect_err("expired");
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
    let error = store.acquire_lease(of_other(NOW - 1), UNTIL).await.expect_err("not yet");
    assert!(matches!(error, StoreError::Leased { .. }), "{error}");
    store.acquire_lease(of_other(NOW), UNTIL).await.expect("expired");
}

pub(crate) async fn a_lease_is_renewed_but_not_moved_back(store: &dyn RunStore) {
    add_run(store, "r").await;
    store.commit_step(commit("r", 1)).await.expect("committed");
    let renewed = store.renew_lease(guard("r"), UNTIL + 5).await.expect("renewed");
    assert_eq!((renewed.until, renewed.version), (UNTIL + 5, 2));
    let renewed = store.renew_lease(guard("r"), UNTIL - 5).await.expect("the lease is held");
    assert_eq!(renewed.until, UNTIL + 5);
    let error = store.renew_lease(of_other(NOW), UNTIL).await.expect_err("not its own");
    assert!(matches!(error, StoreError::LeaseLost { .. }), "{error}");
}

pub(crate) async fn a_run_that_has_ended_is_opened_again(store: &dyn RunStore) {
    let reopen = async |version| store.reopen_run(of_other(NOW), UNTIL, version, json("[1]")).await;
    let error = reopen(1).await.expect_err("no run");
    assert!(matches!(error, StoreError::NotFound { entity: Entity::Run, .. }), "{error}");
    add_run(store, "r").await;
    let error = reopen(1).await.expect_err("open");
    assert!(matches!(error, StoreError::StillOpen { .. }), "{error}");
    store.request_cancel("r", NOW).await.expect("asked");
    let mut end = commit("r", 1);
    end.status = RunStatus::Cancelled;
    store.commit_step(end).await.expect("committed");
    let error = reopen(1).await.expect_err("changed");
    assert!(matches!(error, StoreError::Conflict { expected: 1, found: 2, .. }), "{error}");
    let lease = reopen(2).await.expect("open again");
    assert_eq!((&*lease.owner, lease.version, lease.cancel_requested_at), ("process 2", 3, None));
    let run = store.run("r").await.expect("the store has the run");
    assert_eq!((run.summary.status, run.summary.cancel_requested_at), (RunStatus::Running, None));
    assert_eq!(run.state, json("[1]"));
    let error = reopen(3).await.expect_err("open");
    assert!(matches!(error, StoreError::StillOpen { .. }), "{error}");
    let mut next = commit("r", 3);
    next.guard = of_other(NOW);
    store.commit_step(next).await.expect("committed");
}
