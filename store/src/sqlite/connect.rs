//! Connections to the file, with the settings that every connection needs.

use std::{
    path::PathBuf,
    time::{Duration, Instant},
};

use rusqlite::{Connection, OpenFlags, config::DbConfig};

use super::{SqliteOptions, migrate, sqlite_error};
use crate::error::{DatabaseFailure, OpenError, StoreError};

/// The size of a page. It is SQLite's default, and set for new files.
const PAGE_BYTES: u64 = 4096;

/// The number of statements that a connection keeps compiled: more than this crate has.
const STATEMENTS: usize = 256;

/// The size to which the write-ahead log is truncated after a checkpoint: 16 MiB.
const LOG_BYTES: i64 = 16 << 20;

/// The pause between attempts to switch to the write-ahead log. This switch does not wait for locks by
/// itself.
const BUSY_PAUSE: Duration = Duration::from_millis(5);

/// Makes connections to one file.
#[derive(Debug, Clone)]
pub(super) struct ConnectionFactory {
    pub(super) path: PathBuf,
    pub(super) options: SqliteOptions,
}

impl ConnectionFactory {
    /// Opens the connection that writes. It makes and migrates the tables.
    pub(super) fn writer(&self) -> Result<Connection, StoreError> {
        let mut connection = self.open().map_err(|error| sqlite_error("open its file", error))?;
        if connection.is_readonly("main").map_err(|error| sqlite_error("open its file", error))? {
            let source = std::io::Error::from(std::io::ErrorKind::ReadOnlyFilesystem);
            return Err(StoreError::database("open its file", DatabaseFailure::ReadOnly, source));
        }
        // Check the version first, so that a store of a newer version is never written to.
        if migrate::is_foreign(&mut connection).map_err(|error| sqlite_error("read its version", error))? {
            return Err(OpenError::Foreign { path: self.path.clone() }.into());
        }
        migrate::check_version(&connection, migrate::MIGRATIONS)?;
        self.turn_log_on(&connection)?;
        let settings = || -> rusqlite::Result<()> {
            // A commit waits for the disk. With `NORMAL`, the last commits would be lost if the machine
            // fails.
            connection.pragma_update(None, "synchronous", "FULL")?;
            connection.pragma_update(None, "journal_size_limit", LOG_BYTES)?;
            if let Some(bytes) = self.options.max_bytes {
                // SQLite accepts at most 2^32 - 2 pages.
                let pages = u32::try_from(bytes / PAGE_BYTES).unwrap_or(u32::MAX - 1).max(1);
                connection.pragma_update_and_check(None, "max_page_count", pages, |_| Ok(()))?;
            }
            Ok(())
        };
        settings().map_err(|error| sqlite_error("set up its connection", error))?;
        migrate::migrate(&mut connection, migrate::MIGRATIONS)?;
        Ok(connection)
    }

    /// Opens a connection that reads.
    pub(super) fn reader(&self) -> Result<Connection, StoreError> {
        let open = || -> rusqlite::Result<Connection> {
            let connection = self.open()?;
            // Only the writer thread may write, so a mistaken write on this connection fails.
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        };
        open().map_err(|error| sqlite_error("open its file", error))
    }

    fn open(&self) -> rusqlite::Result<Connection> {
        // No `CREATE` flag, because the file already exists with its mode. The path is absolute, so SQLite
        // takes it neither for the name of a database in memory nor for a URI.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.set_prepared_statement_cache_capacity(STATEMENTS);
        connection.busy_timeout(self.options.busy_timeout)?;
        // SQLite advises these settings for files that another program may have damaged or crafted.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_DEFENSIVE, true)?;
        connection.pragma_update(None, "trusted_schema", false)?;
        connection.pragma_update(None, "cell_size_check", true)?;
        // SQLite enforces foreign keys only on request, and removals rely on their cascades.
        connection.pragma_update(None, "foreign_keys", true)?;
        Ok(connection)
    }

    /// Turns the write-ahead log on. The file remembers it.
    fn turn_log_on(&self, connection: &Connection) -> Result<(), StoreError> {
        let deadline = Instant::now() + self.options.busy_timeout;
        loop {
            let mode = connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get(0));
            match mode.map_err(|error| sqlite_error("turn its log on", error)) {
                Ok::<String, _>(mode) if mode.eq_ignore_ascii_case("wal") => return Ok(()),
                Ok(mode) => {
                    let source = std::io::Error::other(format!("the log's mode is `{mode}`"));
                    return Err(StoreError::database("turn its log on", DatabaseFailure::Other, source));
                }
                Err(error) if error.failure() == Some(DatabaseFailure::Busy) && Instant::now() < deadline => {
                    // This thread is for blocking work, so the sleep delays no task.
                    std::thread::sleep(BUSY_PAUSE);
                }
                Err(error) => return Err(error),
            }
        }
    }
}
