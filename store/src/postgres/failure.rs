//! Classifies PostgreSQL errors by the server's code (`SQLSTATE`).

use deadpool_postgres::{PoolError, TimeoutType};
use tokio_postgres::{Error, error::SqlState};

use crate::error::{DatabaseFailure, StoreError};

pub(super) fn postgres_error(action: &'static str, error: Error) -> StoreError {
    StoreError::database(action, failure_of(&error), error)
}

/// Returns an error of the pool: of a new connection, or of waiting for one.
pub(super) fn pool_error(action: &'static str, error: PoolError) -> StoreError {
    match error {
        PoolError::Backend(error) => {
            let failure = match failure_of(&error) {
                // The server was reached but made no connection: TLS or a password is missing.
                DatabaseFailure::Other if error.code().is_none() => DatabaseFailure::Refused,
                failure => failure,
            };
            StoreError::database(action, failure, error)
        }
        PoolError::Closed => StoreError::Closed,
        // All connections of this process are in use.
        error @ PoolError::Timeout(TimeoutType::Wait) => {
            StoreError::database(action, DatabaseFailure::Busy, error)
        }
        error => StoreError::database(action, DatabaseFailure::Unavailable, error),
    }
}

fn failure_of(error: &Error) -> DatabaseFailure {
    let Some(state) = error.code() else {
        // An error without a code is not from the server: the connection or `tokio_postgres` failed.
        return if is_connection_error(error) {
            DatabaseFailure::Unavailable
        } else {
            DatabaseFailure::Other
        };
    };
    if *state == SqlState::QUERY_CANCELED {
        DatabaseFailure::TimedOut
    } else if [SqlState::DISK_FULL, SqlState::OUT_OF_MEMORY].contains(state) {
        DatabaseFailure::Full
    } else if [
        SqlState::T_R_SERIALIZATION_FAILURE,
        SqlState::T_R_DEADLOCK_DETECTED,
        SqlState::LOCK_NOT_AVAILABLE,
    ]
    .contains(state)
    {
        DatabaseFailure::Busy
    } else if *state == SqlState::READ_ONLY_SQL_TRANSACTION {
        DatabaseFailure::ReadOnly
    } else if [SqlState::INSUFFICIENT_PRIVILEGE, SqlState::UNDEFINED_DATABASE].contains(state) {
        DatabaseFailure::Refused
    } else {
        match state.code().get(..2) {
            // The other codes of class XX mean damaged data and a damaged index.
            Some("XX") if *state != SqlState::INTERNAL_ERROR => DatabaseFailure::Corrupt,
            Some("28") => DatabaseFailure::Refused,
            // Broken connections, too many of them, a server that starts or stops, and a transaction that was
            // idle for too long (25P03).
            Some("08" | "53" | "57" | "25") => DatabaseFailure::Unavailable,
            _ => DatabaseFailure::Other,
        }
    }
}

/// Whether the connection failed, but not because of TLS.
fn is_connection_error(error: &Error) -> bool {
    let mut source = std::error::Error::source(error);
    while let Some(cause) = source {
        if let Some(io) = cause.downcast_ref::<std::io::Error>() {
            return !io.get_ref().is_some_and(|inner| inner.is::<rustls::Error>());
        }
        source = cause.source();
    }
    error.is_closed()
}
