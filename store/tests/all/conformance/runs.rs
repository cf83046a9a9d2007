//! Runs: adding, reading and listing them.

use portcullis_store::{
    DatabaseFailure, Entity, Page, PageRequest, RunFilter, RunStatus, RunStore, RunSummary, StoreError,
};

use super::{OWNER, UNTIL, add_run, commit, guard, json, new_run};

pub(crate) async fn a_run_is_kept_and_read(store: &dyn RunStore) {
    let mut new = new_run("r");
    new.state = json(r#"{ "b": 1e400, "a": "\u0000 ü 🦀" }"#);
    new.labels = vec!["b".to_owned(), "a".to_owned(), "b".to_owned()];
    new.messages = vec![json("1"), json("2")];
    store.create_run(new.clone()).await.expect("a new run");
    let run = store.run("r").await.expect("the store has the run");
    assert_eq!(run.state, new.state);
    let expected = RunSummary {
        id: "r".to_owned(),
        agent: "agent".to_owned(),
        workspace: "/work".to_owned(),
        created: 1_000,
        updated: 1_000,
        status: RunStatus::Running,
        version: 1,
        messages: 2,
        steps: 0,
        labels: vec!["a".to_owned(), "b".to_owned()],
        lease: Some((OWNER.to_owned(), UNTIL)),
        cancel_requested_at: None,
    };
    assert_eq!(run.summary, expected);
    let messages = store.messages("r", PageRequest::default()).await.expect("the store reads the page").items;
    let bodies: Vec<(i64, &str)> =
        messages.iter().map(|message| (message.ordinal, message.body.as_str())).collect();
    assert_eq!(bodies, [(1, "1"), (2, "2")]);
    store.ping().await.expect("it answers");
}

pub(crate) async fn an_id_is_taken_once(store: &dyn RunStore) {
    add_run(store, "r").await;
    let error = store.create_run(new_run("r")).await.expect_err("taken");
    assert!(matches!(&error, StoreError::AlreadyExists { entity: Entity::Run, id } if id == "r"), "{error}");
    for error in [
        store.run("x").await.expect_err("no run"),
        store.messages("x", PageRequest::default()).await.expect_err("no run"),
        store.steps("x", PageRequest::default()).await.expect_err("no run"),
        store.started_calls("x", PageRequest::default()).await.expect_err("no run"),
        store.request_cancel("x", 1).await.expect_err("no run"),
    ] {
        assert!(matches!(&error, StoreError::NotFound { entity: Entity::Run, id } if id == "x"), "{error}");
        assert_eq!(error.failure(), None::<DatabaseFailure>);
    }
}

pub(crate) async fn runs_are_listed_in_pages(store: &dyn RunStore) {
    // Runs of the same time are sorted by the bytes of their ids, in both databases.
    let ids = ["B", "a", "b", "Ä", "z-1", "z1"];
    for (number, id) in ids.iter().enumerate() {
        let mut new = new_run(id);
        new.created = if number < 3 { 5 } else { 7 };
        store.create_run(new).await.expect("a new run");
    }
    let mut request = PageRequest::first(4);
    let mut pages = Vec::new();
    loop {
        let Page { items, next } = store.runs(RunFilter::default(), request).await.expect("a page");
        pages.push(items.into_iter().map(|run| run.id).collect::<Vec<_>>());
        let Some(cursor) = next else { break };
        request = PageRequest::after(cursor, 4);
    }
    assert_eq!(pages, [vec!["Ä", "z1", "z-1", "b"], vec!["a", "B"]]);
    let none =
        store.runs(RunFilter::default(), PageRequest::after((5, "B".to_owned()), 0)).await.expect("a page");
    assert_eq!(none, Page { items: Vec::new(), next: None });
}

pub(crate) async fn listings_are_filtered(store: &dyn RunStore) {
    for (id, agent, until) in [("r1", "a", 100), ("r2", "b", 300), ("r3", "a", 300), ("r4", "a", 9_999)] {
        let mut new = new_run(id);
        new.agent = agent.to_owned();
        new.workspace = format!("/{agent}");
        new.lease = Some((OWNER.to_owned(), until));
        store.create_run(new).await.expect("a new run");
    }
    let mut end = commit("r4", 1);
    end.status = RunStatus::Completed;
    store.commit_step(end).await.expect("committed");
    store.release_lease("r3", OWNER).await.expect("released");
    let list = async |filter: RunFilter| {
        let page = store.runs(filter, PageRequest::default()).await.expect("a page");
        page.items.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let agent = Some("a".to_owned());
    let (status, all) = (Some(RunStatus::Completed), RunFilter::default());
    assert_eq!(list(all.clone()).await, ["r4", "r3", "r2", "r1"]);
    assert_eq!(list(RunFilter { agent: agent.clone(), ..all.clone() }).await, ["r4", "r3", "r1"]);
    let workspace = Some("/b".to_owned());
    assert_eq!(list(RunFilter { workspace: workspace.clone(), ..all.clone() }).await, ["r2"]);
    let elsewhere = RunFilter { workspace, agent: agent.clone(), ..all.clone() };
    assert_eq!(list(elsewhere).await, [""; 0]);
    assert_eq!(list(RunFilter { status, ..all.clone() }).await, ["r4"]);
    assert_eq!(list(RunFilter { resumable_at: Some(100), ..all.clone() }).await, ["r3", "r1"]);
    assert_eq!(list(RunFilter { resumable_at: Some(300), ..all.clone() }).await, ["r3", "r2", "r1"]);
    assert_eq!(list(RunFilter { resumable_at: Some(300), agent, status, ..all }).await, [""; 0]);
}

pub(crate) async fn open_runs_of_an_agent_are_listed(store: &dyn RunStore) {
    for (id, agent, status) in [
        ("r1", "a", RunStatus::Running),
        ("r2", "a", RunStatus::Completed),
        ("r3", "b", RunStatus::Waiting),
        ("r4", "a", RunStatus::Waiting),
        ("r5", "b", RunStatus::Failed),
    ] {
        let mut new = new_run(id);
        new.agent = agent.to_owned();
        store.create_run(new).await.expect("a new run");
        let mut step = commit(id, 1);
        step.status = status;
        store.commit_step(step).await.expect("committed");
    }
    let list = async |filter: RunFilter| {
        let page = store.runs(filter, PageRequest::default()).await.expect("a page");
        page.items.into_iter().map(|run| run.id).collect::<Vec<_>>()
    };
    let all = RunFilter::default();
    let of = |agent: &str, is_open| RunFilter { agent: Some(agent.to_owned()), is_open, ..all.clone() };
    assert_eq!(list(of("a", Some(true))).await, ["r4", "r1"]);
    assert_eq!(list(of("a", Some(false))).await, ["r2"]);
    assert_eq!(list(of("a", None)).await, ["r4", "r2", "r1"]);
    assert_eq!(list(RunFilter { is_open: Some(true), ..all.clone() }).await, ["r4", "r3", "r1"]);
    assert_eq!(list(RunFilter { is_open: Some(false), ..all.clone() }).await, ["r5", "r2"]);
    let workspace = Some("/work".to_owned());
    assert_eq!(list(RunFilter { is_open: Some(false), workspace, ..all.clone() }).await, ["r5", "r2"]);
    let resumable_at = Some(i64::MAX);
    assert_eq!(list(RunFilter { is_open: Some(false), resumable_at, ..all }).await, [""; 0]);
}

pub(crate) async fn a_person_asks_once_that_a_run_end(store: &dyn RunStore) {
    add_run(store, "r").await;
    store.request_cancel("r", 7).await.expect("asked");
    store.request_cancel("r", 9).await.expect("asked again");
    let run = store.run("r").await.expect("the store has the run");
    assert_eq!((run.summary.cancel_requested_at, run.summary.version), (Some(7), 1));
    let mut end = commit("r", 1);
    end.status = RunStatus::Cancelled;
    let lease = store.renew_lease(guard("r"), UNTIL + 1).await.expect("renewed");
    assert_eq!(lease.cancel_requested_at, Some(7), "the process that drives the run learns of it");
    store.commit_step(end).await.expect("committed");
    let error = store.request_cancel("r", 11).await.expect_err("over");
    assert!(matches!(error, StoreError::Ended { .. }), "{error}");
}
