//! The versions of the tables. `user_version` of the file has the version, and `application_id` marks the
//! file as ours.

use rusqlite::{Connection, TransactionBehavior};

use super::sqlite_error;
use crate::error::{OpenError, StoreError};

/// One script for each version: the first makes version 1. A script that was released is never changed.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

/// `PCrs`, for a file of runs.
const APPLICATION_ID: i64 = 0x5043_7273;

/// Whether the file is the database of another program: it has tables, but not our application id.
pub(super) fn is_foreign(connection: &mut Connection) -> rusqlite::Result<bool> {
    // Read both in one transaction: another process may be creating the tables and the application id.
    let connection = connection.transaction()?;
    let id: i64 = connection.pragma_query_value(None, "application_id", |row| row.get(0))?;
    let tables: i64 = connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0))?;
    // A new file has the id 0 and no tables. It is not foreign.
    Ok(id != APPLICATION_ID && (id != 0 || tables > 0))
}

/// Refuses a version that this program does not know. Returns the version.
pub(super) fn check_version(connection: &Connection, scripts: &[&str]) -> Result<usize, StoreError> {
    let found: i64 = connection
        .pragma_query_value(None, "user_version", |row| row.get(0))
        .map_err(|error| sqlite_error("read its version", error))?;
    match usize::try_from(found) {
        Ok(version) if version <= scripts.len() => Ok(version),
        _ => Err(OpenError::NewerVersion { found, supported: crate::limits::to_i64(scripts.len()) }.into()),
    }
}

/// Brings the file to the newest version, in one transaction.
pub(super) fn migrate(connection: &mut Connection, scripts: &[&str]) -> Result<(), StoreError> {
    if check_version(connection, scripts)? == scripts.len() {
        return Ok(());
    }
    let failed = |error| sqlite_error("migrate its tables", error);
    // `Immediate` waits for the write lock here. A transaction that has read first fails instead of waiting.
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate).map_err(failed)?;
    // Another process may have migrated the file while this one waited.
    let version = check_version(&transaction, scripts)?;
    for script in &scripts[version..] {
        transaction.execute_batch(script).map_err(failed)?;
    }
    transaction.pragma_update(None, "application_id", APPLICATION_ID).map_err(failed)?;
    transaction.pragma_update(None, "user_version", crate::limits::to_i64(scripts.len())).map_err(failed)?;
    transaction.commit().map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_brought_from_each_version_to_the_newest() {
        let scripts = ["create table a (x)", "alter table a add y", "create table b (z)"];
        for start in 0..=scripts.len() {
            let mut connection = Connection::open_in_memory().expect("opens");
            migrate(&mut connection, &scripts[..start]).expect("migrates");
            migrate(&mut connection, &scripts).expect("migrates");
            connection
                .execute_batch("insert into a (x, y) values (1, 2); insert into b values (3)")
                .expect("the SQL runs");
            assert!(!is_foreign(&mut connection).expect("readable"));
        }
    }

    #[test]
    fn a_script_that_fails_changes_nothing() {
        let mut connection = Connection::open_in_memory().expect("opens");
        let scripts = ["create table a (x)", "create table b (x); create table a (x)"];
        migrate(&mut connection, &scripts).expect_err("the table is there");
        let tables: i64 =
            connection.query_row("select count(*) from sqlite_schema", [], |row| row.get(0)).expect("counts");
        assert_eq!((tables, check_version(&connection, &scripts).expect("old")), (0, 0));
    }
}
