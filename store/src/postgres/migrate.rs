//! The versions of the tables. The table `store_version` has one row with the version. An advisory lock
//! serializes processes that migrate at the same time.

use tokio_postgres::{Client, GenericClient};

use super::failure::postgres_error;
use crate::{
    error::{DatabaseFailure, OpenError, StoreError},
    limits::to_i64,
};

/// One script for each version: the first makes version 1. A script that was released is never changed.
pub(super) const MIGRATIONS: &[&str] = &[
    include_str!("schema_1.sql"),
    include_str!("schema_2.sql"),
    include_str!("schema_3.sql"),
    include_str!("schema_4.sql"),
];

/// The key of the lock: `PCrs`, like the application id of the SQLite files.
const LOCK_KEY: i64 = 0x5043_7273;

/// Brings the tables to the newest version, in one transaction. A role that may not make tables can use a store that
/// needs no migration.
pub(super) async fn migrate(client: &mut Client, scripts: &[&str]) -> Result<(), StoreError> {
    let failed = |error| postgres_error("migrate its tables", error);
    check_encoding(client).await?;
    if check_version(client, scripts).await? == scripts.len() {
        return Ok(());
    }
    let transaction = client.transaction().await.map_err(failed)?;
    transaction.execute("select pg_advisory_xact_lock($1)", &[&LOCK_KEY]).await.map_err(failed)?;
    // Another process may have migrated the tables while this one waited.
    let version = check_version(&transaction, scripts).await?;
    if version == 0 {
        // `create schema if not exists` requires the right to create a schema even if the schema exists.
        let schema = "select 1 from pg_namespace where nspname = 'portcullis'";
        if transaction.query_opt(schema, &[]).await.map_err(failed)?.is_none() {
            transaction.batch_execute("create schema portcullis").await.map_err(failed)?;
        }
        let table = "create table portcullis.store_version (version bigint not null); \
                     insert into portcullis.store_version (version) values (0)";
        transaction.batch_execute(table).await.map_err(failed)?;
    }
    for script in scripts.get(version..).unwrap_or_default() {
        transaction.batch_execute(script).await.map_err(failed)?;
    }
    let update = "update portcullis.store_version set version = $1";
    transaction.execute(update, &[&to_i64(scripts.len())]).await.map_err(failed)?;
    transaction.commit().await.map_err(failed)
}

/// Refuses a database that cannot store every text.
async fn check_encoding(client: &Client) -> Result<(), StoreError> {
    let row = client.query_one("show server_encoding", &[]).await;
    let encoding: String =
        row.and_then(|row| row.try_get(0)).map_err(|error| postgres_error("read its encoding", error))?;
    if encoding != "UTF8" {
        return Err(OpenError::Encoding { found: encoding }.into());
    }
    Ok(())
}

/// Refuses a version that this program does not know. Returns the version; 0 without tables.
async fn check_version(client: &impl GenericClient, scripts: &[&str]) -> Result<usize, StoreError> {
    let failed = |error| postgres_error("read its version", error);
    let table = "select 1 from pg_tables where schemaname = 'portcullis' and tablename = 'store_version'";
    if client.query_opt(table, &[]).await.map_err(failed)?.is_none() {
        return Ok(0);
    }
    let row = client.query_opt("select version from portcullis.store_version", &[]).await.map_err(failed)?;
    let Some(row) = row else {
        let source = "the table of its version is empty";
        return Err(StoreError::database("read its version", DatabaseFailure::Corrupt, source));
    };
    let found: i64 = row.try_get(0).map_err(failed)?;
    match usize::try_from(found) {
        Ok(version) if version <= scripts.len() => Ok(version),
        _ => Err(OpenError::NewerVersion { found, supported: to_i64(scripts.len()) }.into()),
    }
}
