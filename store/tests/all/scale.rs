//! Tests many runs, long runs, and the duration of a step.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use portcullis_store::{PageRequest, RunFilter, RunStore};

use crate::{
    conformance::{add_run, commit, json, new_run},
    postgres_server::Server,
    sqlite::{block_on, database_path, open_default},
};

/// The steps of the long run.
const STEPS: i64 = 10_000;

/// The runs of the long listing.
const RUNS: usize = 100_000;

/// Lists all runs in pages, and returns their number and the time of the slowest page.
async fn list_all(store: &dyn RunStore) -> (usize, Duration) {
    let (mut request, mut count, mut slowest) = (PageRequest::default(), 0, Duration::ZERO);
    loop {
        let started_at = Instant::now();
        let page = store.runs(RunFilter::default(), request).await.expect("a page");
        slowest = slowest.max(started_at.elapsed());
        count += page.items.len();
        let Some(cursor) = page.next else { return (count, slowest) };
        request = PageRequest::after(cursor, 1_000);
    }
}

/// Commits the steps of a long run one after another, and prints the times of a commit.
async fn a_long_run(store: Arc<dyn RunStore>, steps: i64) {
    add_run(&*store, "long").await;
    let mut times = Vec::new();
    for version in 1..=steps {
        let mut step = commit("long", version);
        step.messages = vec![json("{\"role\":\"user\",\"content\":\"a short message\"}")];
        let started_at = Instant::now();
        store.commit_step(step).await.expect("committed");
        times.push(started_at.elapsed());
    }
    times.sort_unstable();
    println!(
        "commit_step of {steps}: p50 {:?}, p99 {:?}",
        times[times.len() / 2],
        times[times.len() * 99 / 100]
    );
    let (mut request, mut expected) = (PageRequest::default(), 0);
    loop {
        let page = store.steps("long", request).await.expect("a page");
        for step in &page.items {
            expected += 1;
            assert_eq!(step.ordinal, expected);
        }
        let Some(cursor) = page.next else { break };
        request = PageRequest::after(cursor, 1_000);
    }
    assert_eq!(expected, steps);
}

#[test]
fn a_long_run_is_read_in_pages() {
    let (_folder, path) = database_path();
    block_on(async { a_long_run(open_default(&path).await, STEPS).await });
    let Some(server) = Server::start() else { return };
    block_on(async {
        let url = server.new_database().await;
        a_long_run(crate::postgres::open_default(&url).await, STEPS / 10).await;
    });
}

#[test]
fn many_runs_are_listed_in_pages() {
    let (_folder, path) = database_path();
    block_on(async {
        let store = open_default(&path).await;
        let started_at = Instant::now();
        for group in 0..RUNS / 1_000 {
            let added = (0..1_000_i64).map(|number| {
                let mut new = new_run(&format!("r{group}-{number}"));
                new.created = number % 7;
                store.create_run(new)
            });
            futures_util::future::join_all(added)
                .await
                .into_iter()
                .for_each(|added| added.expect("a new run"));
        }
        let written = started_at.elapsed();
        let started_at = Instant::now();
        let (count, slowest) = list_all(&*store).await;
        println!(
            "{RUNS} runs: written in {written:?}, listed in {:?}, slowest page {slowest:?}",
            started_at.elapsed()
        );
        assert_eq!(count, RUNS);
    });
}
