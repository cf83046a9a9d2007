//! Stores of older versions keep their data through the migration, and the new features work on that data.

use std::{fs, os::unix::fs::PermissionsExt as _, path::Path};

use portcullis_store::{
    Change, ExternalCallStatus, GatewayStore, InboxSpan, NewRun, PageRequest, ResolveOutcome, ResultDelivery,
    RunFilter,
};
use rusqlite::Connection;

use crate::{
    conformance::{
        builders::{add_space, new_event, new_message, post},
        json, new_run,
    },
    postgres_server::Server,
    sqlite::{assert_intact, block_on, database_path, open_gateway},
};

/// The scripts of the versions, for each database.
const SQLITE: [&str; 3] = [
    include_str!("../../src/sqlite/schema_1.sql"),
    include_str!("../../src/sqlite/schema_2.sql"),
    include_str!("../../src/sqlite/schema_3.sql"),
];
const POSTGRES: [&str; 3] = [
    include_str!("../../src/postgres/schema_1.sql"),
    include_str!("../../src/postgres/schema_2.sql"),
    include_str!("../../src/postgres/schema_3.sql"),
];

/// Rows that all versions have: a run, a started call, two external calls, and two entries of the agent's inbox.
const ROWS: &str = "
    insert into runs values ('r', 'ada', 'w', 1, 1, 'running', 0, 1, 0, 0, 1, '[]', null, null, null);
    insert into effects values ('r', 'begun', 1, 'echo', 2, '{}', 1, 1, 1, null, null, '[]');
    insert into run_states values ('r', '{}');
    insert into calls (id, run, agent, tool, bytes, arguments, status, created, updated)
        values ('c', 'r', 'ada', 'ask', 2, '{}', 'pending', 1, 1);
    insert into calls (id, run, agent, tool, bytes, arguments, status, result, created, updated)
        values ('old', 'r', 'ada', 'ask', 3, '{}', 'resolved', '7', 1, 1);
    insert into inboxes values ('ada', 2, 2);
    insert into inbox_entries values ('ada', 1, 'k', 1, '1', 1, null), ('ada', 2, 'k', 1, '2', 1, null);
";

fn sqlite_of_version(path: &Path, version: usize) {
    fs::write(path, "").expect("the file can be written");
    fs::set_permissions(path, fs::Permissions::from_mode(0o600)).expect("set");
    let connection = Connection::open(path).expect("opens");
    for script in &SQLITE[..version] {
        connection.execute_batch(script).expect("the SQL runs");
    }
    connection.execute_batch(ROWS).expect("filled");
    connection.pragma_update(None, "application_id", 0x5043_7273).expect("set");
    connection.pragma_update(None, "user_version", i64::try_from(version).expect("small")).expect("set");
}

async fn check(store: &dyn GatewayStore) {
    let open = RunFilter { agent: Some("ada".to_owned()), is_open: Some(true), ..RunFilter::default() };
    let runs = store.runs(open, PageRequest::default()).await.expect("listed").items;
    assert_eq!(runs.iter().map(|run| &*run.id).collect::<Vec<_>>(), ["r"]);
    let started = store.started_calls("r", PageRequest::default()).await.expect("listed").items;
    assert_eq!(started.iter().map(|started| &*started.call).collect::<Vec<_>>(), ["begun"]);
    assert_eq!(store.inboxes_with_entries("a", PageRequest::default()).await.expect("listed").items, ["ada"]);
    let span = InboxSpan { agent: "ada".to_owned(), first: 1, last: 2 };
    store.create_run(NewRun { consumed_inbox: Some(span), ..new_run("s") }).await.expect("begins");
    // The result from an older version does not name its recipient.
    let earlier = store
        .resolve_external_call_with("old", json("8"), 2, Vec::new())
        .await
        .expect("the store has the call");
    let ResolveOutcome::AlreadyClosed { call, delivery } = earlier else { panic!("{earlier:?}") };
    assert_eq!((call.status, call.result, delivery), (ExternalCallStatus::Resolved, Some(json("7")), None));
    // A call without a separate inbox delivers its result to its agent's inbox.
    let event = vec![Change::AppendEvent(new_event(&["run:r"], "1"))];
    let resolved = store.resolve_external_call_with("c", json("1"), 2, event).await.expect("resolved");
    assert!(
        matches!(resolved, ResolveOutcome::Resolved { delivery: ResultDelivery::Inbox { ordinal: 3 }, .. }),
        "{resolved:?}"
    );
    assert_eq!(store.inbox("ada", PageRequest::default()).await.expect("listed").items.len(), 1);
    add_space(store, "s").await;
    post(store, new_message("s", "m", "hello")).await;
    assert_eq!(store.event_bounds().await.expect("read").newest, 1);
}

#[test]
fn files_of_older_versions_are_migrated_with_their_data() {
    for version in [1, 2, 3] {
        let (_folder, path) = database_path();
        sqlite_of_version(&path, version);
        block_on(async {
            let store = open_gateway(&path).await;
            check(&*store).await;
            store.close().await;
            open_gateway(&path).await.run("r").await.expect("there after reopening");
        });
        assert_intact(&path);
    }
}

#[test]
fn databases_of_older_versions_are_migrated_with_their_data() {
    let Some(server) = Server::start() else { return };
    block_on(async {
        for version in [1, 2, 3] {
            let url = server.new_database().await;
            let scripts = POSTGRES[..version].concat();
            let database = format!("test{}", version - 1);
            let made = format!(
                "create schema portcullis; set search_path = portcullis; \
                 create table store_version (version bigint not null); \
                 insert into store_version values ({version}); {scripts} {ROWS}"
            );
            server.execute(&database, &made).await;
            check(&*portcullis_store::open_gateway(&url).await.expect("opens")).await;
        }
    });
}
