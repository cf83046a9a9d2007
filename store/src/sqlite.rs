//! The store in an SQLite file: one thread writes, and other connections read.

mod connect;
mod file;
mod migrate;
mod readers;
mod session;
mod writer;

use std::{path::Path, time::Duration};

use self::{connect::ConnectionFactory, readers::Readers, writer::Writer};
use crate::{
    error::{DatabaseFailure, OpenError, StoreError},
    sql::{SqlBackend, TransactionWork},
};

/// The options of an SQLite store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SqliteOptions {
    /// How long a write waits for other processes. Default: 5 seconds.
    pub busy_timeout: Duration,
    /// The maximum size of the database, without its log of at most a few MiB. It is rounded down to pages of 4 KiB.
    /// Default: none, so that the disk is the limit.
    pub max_bytes: Option<u64>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self { busy_timeout: Duration::from_secs(5), max_bytes: None }
    }
}

/// An open SQLite file.
#[derive(Debug)]
pub(crate) struct Sqlite {
    writer: Writer,
    readers: Readers,
}

impl Sqlite {
    /// Opens the file, and makes or migrates it. This blocks.
    pub(crate) fn open(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        // Readers open the file later, so its path must not depend on the working directory.
        let path =
            std::path::absolute(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
        file::prepare(&path)?;
        let connections = ConnectionFactory { path, options };
        // The writer comes first, because it makes the tables that readers need.
        let writer = Writer::start(connections.writer()?)?;
        Ok(Self { writer, readers: Readers::new(connections) })
    }
}

impl SqlBackend for Sqlite {
    async fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> Result<T, StoreError> {
        self.writer.write(action, operation).await
    }

    async fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> Result<T, StoreError> {
        self.readers.read(action, operation).await
    }

    async fn close(&self) {
        // Close the readers first: the last connection to close checkpoints the log into the file.
        self.readers.close().await;
        self.writer.close().await;
    }
}

/// Returns the store's error for an SQLite error.
fn sqlite_error(action: &'static str, error: rusqlite::Error) -> StoreError {
    StoreError::database(action, classify(&error), error)
}

/// Classifies an SQLite error by its code.
fn classify(error: &rusqlite::Error) -> DatabaseFailure {
    use rusqlite::ErrorCode;
    match error.sqlite_error_code() {
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => DatabaseFailure::Busy,
        Some(ErrorCode::ReadOnly) => DatabaseFailure::ReadOnly,
        Some(ErrorCode::DiskFull) => DatabaseFailure::Full,
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => DatabaseFailure::Corrupt,
        Some(ErrorCode::CannotOpen | ErrorCode::SystemIoFailure) => DatabaseFailure::Unavailable,
        Some(ErrorCode::PermissionDenied | ErrorCode::AuthorizationForStatementDenied) => {
            DatabaseFailure::Refused
        }
        _ => DatabaseFailure::Other,
    }
}
