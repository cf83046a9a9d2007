//! The suite on SQLite, and the faults of a file.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use portcullis_store::{
    Change, DatabaseFailure, GatewayStore, LimitError, NewSpace, OpenError, PageRequest, ParticipantKind,
    RunFilter, RunStore, SqliteOptions, StoreError, Token,
    limits::{MAX_PARTICIPANTS, MAX_PAYLOAD_BYTES, MAX_SPACE_MESSAGES, MAX_SPACES, MAX_TOKENS},
    open, open_gateway_sqlite, open_sqlite,
};
use rusqlite::Connection;
use tempfile::TempDir;

use crate::conformance::{self, add_run, builders, commit, foreach_case, json, new_run};

/// A folder that is private, regardless of the umask.
fn private_folder() -> TempDir {
    let private = fs::Permissions::from_mode(0o700);
    tempfile::Builder::new().permissions(private).tempdir().expect("a folder")
}

/// A private folder with the path of a store.
pub(crate) fn database_path() -> (TempDir, PathBuf) {
    let folder = private_folder();
    let path = folder.path().join("runs.db");
    (folder, path)
}

pub(crate) async fn open_default(path: &Path) -> Arc<dyn RunStore> {
    open_sqlite(path, SqliteOptions::default()).await.expect("opens")
}

pub(crate) async fn open_gateway(path: &Path) -> Arc<dyn GatewayStore> {
    open_gateway_sqlite(path, SqliteOptions::default()).await.expect("opens")
}

/// Runs a test with several threads, so that writes are concurrent.
pub(crate) fn block_on<T>(test: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("starts").block_on(test)
}

macro_rules! each_case_is_a_test {
    ($($module:ident::$case:ident,)+) => {
        $(
            #[test]
            fn $case() {
                let (_folder, path) = database_path();
                block_on(async {
                    let store = open_gateway(&path).await;
                    conformance::$module::$case(&*store).await;
                    store.close().await;
                });
                assert_intact(&path);
            }
        )+
    };
}
foreach_case!(each_case_is_a_test);

/// Fails unless SQLite finds no fault in the file.
#[track_caller]
pub(crate) fn assert_intact(path: &Path) {
    let connection = Connection::open(path).expect("opens");
    let verdict: String =
        connection.pragma_query_value(None, "integrity_check", |row| row.get(0)).expect("checks");
    assert_eq!(verdict, "ok");
    let mut check = connection.prepare("pragma foreign_key_check").expect("checks");
    assert!(check.query([]).expect("checks").next().expect("checks").is_none(), "a row without its run");
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).expect("the path exists").mode() & 0o7777
}

fn companion(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().expect("a name").to_owned();
    name.push(end);
    path.with_file_name(name)
}

#[track_caller]
fn check_refused(path: &Path, expected: impl Fn(&StoreError) -> bool) {
    let error = block_on(open_sqlite(path, SqliteOptions::default())).expect_err("refused");
    assert!(expected(&error), "{error:?}");
}

#[test]
fn writes_survive_reopening() {
    let (_folder, path) = database_path();
    block_on(async {
        let store = open(path.to_str().expect("the path is UTF-8")).await.expect("opens");
        add_run(&*store, "r").await;
        store.close().await;
        let error = store.run("r").await.expect_err("closed");
        assert!(matches!(error, StoreError::Closed), "{error}");
        let error = store.create_run(new_run("s")).await.expect_err("closed");
        assert!(matches!(error, StoreError::Closed), "{error}");
        let store = open_default(&path).await;
        assert_eq!(store.run("r").await.expect("the store has the run").summary.id, "r");
    });
}

#[test]
fn the_files_are_private_whatever_the_umask() {
    let (folder, path) = database_path();
    let old = rustix::process::umask(rustix::fs::Mode::empty());
    let store = block_on(async {
        let store = open_default(&path).await;
        add_run(&*store, "r").await;
        store
    });
    rustix::process::umask(old);
    for end in ["", "-wal", "-shm"] {
        assert_eq!(mode(&companion(&path, end)), 0o600, "{end}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("readable").count(), 3, "no temporary file is left");
    block_on(store.close());
}

#[test]
fn places_that_others_can_reach_are_refused() {
    let (folder, path) = database_path();
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o750)).expect("set");
    check_refused(&path, |error| {
        matches!(error, StoreError::Open(OpenError::NotPrivate { expected: 0o700, found: 0o750, .. }))
    });
    assert!(!path.exists());
    fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o700)).expect("set");
    for end in ["", "-wal", "-shm"] {
        let file = companion(&path, end);
        fs::write(&file, "").expect("written");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).expect("set");
        check_refused(&path, |error| {
            matches!(error, StoreError::Open(OpenError::NotPrivate { expected: 0o600, found: 0o640, .. }))
        });
        fs::remove_file(&file).expect("removed");
    }
    check_refused(&folder.path().join("none/runs.db"), |error| {
        matches!(error, StoreError::Open(OpenError::Io { .. }))
    });
}

#[test]
fn links_and_folders_are_refused() {
    let (folder, path) = database_path();
    let other = folder.path().join("other");
    fs::write(&other, "").expect("written");
    fs::set_permissions(&other, fs::Permissions::from_mode(0o600)).expect("set");
    let not_regular = |error: &StoreError| matches!(error, StoreError::Open(OpenError::NotRegular { .. }));
    for end in ["", "-wal", "-shm", "-journal"] {
        let file = companion(&path, end);
        symlink(&other, &file).expect("linked");
        check_refused(&path, not_regular);
        fs::remove_file(&file).expect("removed");
        fs::hard_link(&other, &file).expect("linked");
        check_refused(&path, not_regular);
        fs::remove_file(&file).expect("removed");
        fs::create_dir(&file).expect("the folder can be made");
        check_refused(&path, not_regular);
        fs::remove_dir(&file).expect("removed");
    }
    assert_eq!(fs::read(&other).expect("readable"), b"");
}

#[test]
fn a_file_of_a_newer_version_is_not_changed() {
    let (_folder, path) = database_path();
    block_on(async { open_default(&path).await.close().await });
    let connection = Connection::open(&path).expect("opens");
    connection.pragma_update(None, "user_version", 7).expect("set");
    drop(connection);
    let before = fs::read(&path).expect("readable");
    check_refused(&path, |error| {
        error.to_string().contains("version 7")
            && matches!(error, StoreError::Open(OpenError::NewerVersion { found: 7, supported: 4 }))
    });
    assert!(fs::read(&path).expect("readable") == before);
}

#[test]
fn a_file_of_another_program_is_not_changed() {
    let (_folder, path) = database_path();
    let connection = Connection::open(&path).expect("opens");
    connection.execute_batch("create table bookmarks (url text)").expect("the SQL runs");
    drop(connection);
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    let before = fs::read(&path).expect("readable");
    check_refused(&path, |error| matches!(error, StoreError::Open(OpenError::Foreign { .. })));
    assert!(fs::read(&path).expect("readable") == before);
}

#[test]
fn a_file_that_shall_not_be_written_is_refused() {
    let (_folder, path) = database_path();
    block_on(async { open_default(&path).await.close().await });
    fs::set_permissions(&path, fs::Permissions::from_mode(0o400)).expect("set");
    check_refused(&path, |error| error.failure() == Some(DatabaseFailure::ReadOnly));
}

#[test]
fn a_damaged_file_is_reported() {
    let (_folder, path) = database_path();
    fs::write(&path, "this is not a database. ".repeat(1000)).expect("written");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("set");
    check_refused(&path, |error| error.failure() == Some(DatabaseFailure::Corrupt));

    fs::remove_file(&path).expect("removed");
    block_on(async {
        let store = open_default(&path).await;
        let ids: Vec<String> = (0..2_000).map(|number| format!("r{number}")).collect();
        futures_util::future::join_all(ids.iter().map(|id| add_run(&*store, id))).await;
        store.close().await;
        // Keep the first pages, which hold the version and the table names.
        let mut bytes = fs::read(&path).expect("readable");
        let half = bytes.len() / 2;
        bytes[half..].fill(0xa5);
        fs::write(&path, bytes).expect("written");
        let store = open_default(&path).await;
        let mut faults = Vec::new();
        for id in &ids {
            if let Err(error) = store.run(id).await {
                faults.push(error.failure());
            }
        }
        assert!(
            !faults.is_empty() && faults.iter().all(|fault| *fault == Some(DatabaseFailure::Corrupt)),
            "{faults:?}"
        );
        let error = store.runs(RunFilter::default(), PageRequest::default()).await.expect_err("damaged");
        assert_eq!(error.failure(), Some(DatabaseFailure::Corrupt), "{error:?}");
        let error = store.create_run(new_run("r1999a")).await.expect_err("damaged");
        assert_eq!(error.failure(), Some(DatabaseFailure::Corrupt), "{error:?}");
    });
}

#[test]
fn a_lock_of_another_process_is_waited_for_and_then_reported() {
    let (_folder, path) = database_path();
    block_on(async {
        let options = SqliteOptions { busy_timeout: Duration::from_millis(50), ..SqliteOptions::default() };
        let store = open_sqlite(&path, options.clone()).await.expect("opens");
        add_run(&*store, "r").await;
        let other = Connection::open(&path).expect("opens");
        other.execute_batch("begin immediate").expect("locked");
        let error = store.create_run(new_run("s")).await.expect_err("locked");
        assert_eq!(error.failure(), Some(DatabaseFailure::Busy), "{error:?}");
        // Readers do not wait, and neither does an open without a migration.
        store.run("r").await.expect("readable");
        open_sqlite(&path, options).await.expect("opens");
        other.execute_batch("rollback").expect("unlocked");
        store.create_run(new_run("s")).await.expect("unlocked");
    });
}

#[test]
fn a_full_database_refuses_and_goes_on_when_there_is_room() {
    let (_folder, path) = database_path();
    block_on(async {
        let options = SqliteOptions { max_bytes: Some(4 << 20), ..SqliteOptions::default() };
        let store = open_sqlite(&path, options).await.expect("opens");
        add_run(&*store, "r").await;
        let mut step = commit("r", 1);
        step.messages = vec![json(&format!("\"{}\"", "x".repeat(MAX_PAYLOAD_BYTES - 2)))];
        let error = store.commit_step(step.clone()).await.expect_err("full");
        assert_eq!(error.failure(), Some(DatabaseFailure::Full), "{error:?}");
        assert_eq!(
            store.run("r").await.expect("the store has the run").summary.version,
            1,
            "nothing of the step is there"
        );
        // Writes of one group are each stored or reported as failed, and every write that is reported as done
        // is stored.
        let ids: Vec<String> = (0..50).map(|number| format!("s{number}")).collect();
        let large = async { store.commit_step(step).await.map(|_| ()) };
        let small = ids.iter().map(|id| store.create_run(new_run(id)));
        let (large, small) = futures_util::future::join(large, futures_util::future::join_all(small)).await;
        assert_eq!(large.expect_err("full").failure(), Some(DatabaseFailure::Full));
        for (id, written) in ids.iter().zip(small) {
            match written {
                Ok(()) => assert_eq!(store.run(id).await.expect("the store has the run").summary.version, 1),
                Err(error) => {
                    assert_eq!(error.failure(), Some(DatabaseFailure::Full), "{error:?}");
                    store.run(id).await.expect_err("not there");
                }
            }
        }
        store.commit_step(commit("r", 1)).await.expect("small enough");
        store.close().await;
    });
    assert_intact(&path);
}

/// Runs the suite up to the small limits. For the other limits, rows are inserted without the store.
#[test]
fn full_tables_of_a_gateway_take_no_more() {
    let (_folder, path) = database_path();
    block_on(async {
        let store = open_gateway(&path).await;
        builders::add_space(&*store, "s").await;
        let other = Connection::open(&path).expect("opens");
        let numbers = format!(
            "with recursive numbers (n) as (select 1 union all select n + 1 from numbers where n < {MAX_TOKENS})"
        );
        assert_eq!((MAX_PARTICIPANTS, MAX_SPACES), (MAX_TOKENS, MAX_TOKENS), "the numbers fit all three");
        for rows in [
            "insert into tokens select 't' || n, 'h' || n, 'admin', null, 1 from numbers",
            "insert into participants select 'p' || n, 'user', 'n', 1, 1, 1, 2, '{}' from numbers",
            "insert into spaces select 's' || n, 'n', 1, 0, 0, null from numbers where n > 1",
        ] {
            other.execute_batch(&format!("{numbers} {rows}")).expect("filled");
        }
        let messages = format!("update spaces set messages = {MAX_SPACE_MESSAGES} where id = 's'");
        other.execute_batch(&messages).expect("filled");
        let token = Token {
            id: "t".to_owned(),
            hash: "0".repeat(64),
            subject_kind: "admin".to_owned(),
            subject: None,
            created: 1,
        };
        let space = NewSpace { id: "new".to_owned(), name: "n".to_owned(), created: 1 };
        let message = Change::PostMessage(builders::new_message("s", "m", ""));
        for (error, full) in [
            (store.add_token(token).await.expect_err("full"), "the tokens"),
            (
                store
                    .create_participant(builders::new_participant("p", ParticipantKind::User))
                    .await
                    .expect_err("full"),
                "the participants",
            ),
            (store.create_space(space).await.expect_err("full"), "the spaces"),
            (store.apply(vec![message]).await.map(|_| ()).expect_err("full"), "the messages of the space"),
        ] {
            assert!(
                matches!(&error, StoreError::Limit(LimitError::TooMany { field, .. }) if *field == full),
                "{error}"
            );
        }
        assert!(store.remove_token("t1").await.expect("removed"));
        store.close().await;
    });
}

#[test]
fn a_name_that_sqlite_reads_otherwise_is_a_file() {
    let folder = private_folder();
    for name in [":memory:", "file:x?mode=memory", "a b%20c#d"] {
        let path = folder.path().join(name);
        block_on(async { open_default(&path).await.close().await });
        assert!(path.is_file(), "{name}");
    }
    let error = block_on(open("mysql://h/db")).expect_err("refused");
    assert!(matches!(error, StoreError::Open(OpenError::Url { .. })), "{error}");
}
