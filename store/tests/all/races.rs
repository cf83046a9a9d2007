//! Races on real rows: a timeout against results, two drivers of a run, and concurrent first openings.

use std::sync::Arc;

use portcullis_store::{
    ExternalCallStatus, LeaseGuard, NewInboxEntry, PageRequest, ResultDelivery, RunStore, StoreError,
    TimeOutOutcome,
};

use crate::{
    conformance::{NOW, add_run, commit, guard, json, new_call},
    postgres_server::Server,
    sqlite::{assert_intact, block_on, database_path, open_default},
};

/// The pairs that race.
const PAIRS: usize = 300;

/// One future on a separate thread.
pub(crate) async fn spawn<T: Send + 'static>(future: impl Future<Output = T> + Send + 'static) -> T {
    #[expect(clippy::disallowed_methods, reason = "a race needs threads; the task ends with its future")]
    tokio::spawn(future).await.expect("ends")
}

/// A timeout in one store races with two results in the others. The agent gets the accepted result once.
async fn time_outs_and_results_meet(stores: [Arc<dyn RunStore>; 3]) {
    let [run, ..] = &stores;
    add_run(&**run, "r").await;
    let (mut inline, mut late) = (0, 0);
    for pair in 0..PAIRS {
        let id = format!("c{pair}");
        run.add_external_call(guard("r"), new_call(&id, ExternalCallStatus::Waiting))
            .await
            .expect("a new call");
        let [waiting, first, second] = stores.clone().map(|store| (store, id.clone()));
        let resolve = |(store, id): (Arc<dyn RunStore>, String), result: &'static str| {
            spawn(async move { store.resolve_external_call(&id, json(result), NOW).await })
        };
        let time_out = spawn(async move { waiting.0.time_out_external_call(&waiting.1, NOW).await });
        let (time_out, first, second) =
            futures_util::future::join3(time_out, resolve(first, "1"), resolve(second, "2")).await;
        let mut accepted = Vec::new();
        for (result, resolved) in [("1", first), ("2", second)] {
            match resolved {
                Ok(delivery) => accepted.push((json(result), delivery)),
                Err(StoreError::CallClosed { status: ExternalCallStatus::Resolved, .. }) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        assert_eq!(accepted.len(), 1, "one result is accepted");
        let (result, delivery) = accepted.remove(0);
        match (time_out.expect("timed out"), delivery) {
            (TimeOutOutcome::AlreadyChanged(call), ResultDelivery::Inline) => {
                assert_eq!((call.status, call.result), (ExternalCallStatus::Resolved, Some(result)));
                inline += 1;
            }
            (TimeOutOutcome::NowPending, ResultDelivery::Inbox { ordinal }) => {
                late += 1;
                assert_eq!(ordinal, late);
            }
            other => panic!("the winners do not fit: {other:?}"),
        }
    }
    println!("{inline} results were inline, {late} late");
    let inbox = run.inbox("agent", PageRequest::default()).await.expect("the store reads the page").items;
    assert_eq!(i64::try_from(inbox.len()).expect("few"), late);
}

/// Two processes drive one run. Each step is committed by one of them, and the other gets an error.
async fn drivers_meet(stores: [Arc<dyn RunStore>; 2]) {
    add_run(&*stores[0], "r").await;
    stores[0].release_lease("r", &guard("r").owner).await.expect("released");
    let mut committed = 0;
    for round in 1..=PAIRS {
        let version = i64::try_from(round).expect("few");
        let attempts = stores.clone().map(|store| {
            spawn(async move {
                let owner = format!("{:p}", Arc::as_ptr(&store));
                let guard = LeaseGuard { run: "r".to_owned(), owner: owner.clone(), now: NOW };
                let lease = store.acquire_lease(guard.clone(), NOW + 1).await?;
                let mut step = commit("r", lease.version.min(version));
                step.guard = guard;
                step.messages = vec![json("1")];
                let result = store.commit_step(step).await;
                store.release_lease("r", &owner).await?;
                result
            })
        });
        for attempt in futures_util::future::join_all(attempts).await {
            match attempt {
                Ok(_) => committed += 1,
                Err(
                    StoreError::Leased { .. } | StoreError::LeaseLost { .. } | StoreError::Conflict { .. },
                ) => {}
                Err(error) => panic!("{error:?}"),
            }
        }
        let run = stores[0].run("r").await.expect("the store has the run").summary;
        assert_eq!(
            (run.version, run.steps, run.messages),
            (version + 1, version, version),
            "one step each round"
        );
    }
    assert_eq!(committed, PAIRS);
}

/// Entries of many senders get ordinals without gaps.
async fn senders_meet(stores: [Arc<dyn RunStore>; 2]) {
    let sends = (0..PAIRS).map(|number| {
        let store = Arc::clone(&stores[number % 2]);
        spawn(async move {
            let (agent, kind) = ("many".to_owned(), "k".to_owned());
            store.push_inbox(NewInboxEntry { agent, kind, body: json("1"), created: 1 }).await.expect("sent")
        })
    });
    let mut ordinals = futures_util::future::join_all(sends).await;
    ordinals.sort_unstable();
    assert_eq!(ordinals, (1..=i64::try_from(PAIRS).expect("few")).collect::<Vec<_>>());
}

async fn all(stores: [Arc<dyn RunStore>; 3], others: [Arc<dyn RunStore>; 2]) {
    time_outs_and_results_meet(stores).await;
    senders_meet(others).await;
}

#[test]
fn stores_on_one_file_agree() {
    let (_folder, path) = database_path();
    let (_folder2, path2) = database_path();
    block_on(async {
        let (a, b, c) = (open_default(&path).await, open_default(&path).await, open_default(&path).await);
        all([Arc::clone(&a), Arc::clone(&b), Arc::clone(&a)], [Arc::clone(&b), Arc::clone(&c)]).await;
        let stores = [open_default(&path2).await, open_default(&path2).await];
        drivers_meet(stores.clone()).await;
        for store in [a, b, c].iter().chain(&stores) {
            store.close().await;
        }
    });
    assert_intact(&path);
    assert_intact(&path2);
}

#[test]
fn stores_on_one_server_agree() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        let (url, url2) = (server.new_database().await, server.new_database().await);
        let open = crate::postgres::open_default;
        let (a, b, c) = (open(&url).await, open(&url).await, open(&url).await);
        all([Arc::clone(&a), Arc::clone(&b), c], [a, b]).await;
        drivers_meet([open(&url2).await, open(&url2).await]).await;
    });
}

#[test]
fn stores_that_open_a_new_file_at_once_all_can() {
    for _ in 0..10 {
        let (_folder, path) = database_path();
        block_on(async {
            let opened = futures_util::future::join_all((0..6).map(|_| {
                let path = path.clone();
                spawn(async move { open_default(&path).await })
            }));
            for (number, store) in opened.await.into_iter().enumerate() {
                add_run(&*store, &number.to_string()).await;
            }
        });
        assert_intact(&path);
    }
}
