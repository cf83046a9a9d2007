//! Connections that read, each used by one operation at a time.

use std::sync::{Arc, Mutex, PoisonError};

use rusqlite::Connection;
use tokio::sync::Semaphore;

use super::{connect::ConnectionFactory, session::SqlSession, sqlite_error};
use crate::{
    error::{DatabaseFailure, StoreError},
    sql::TransactionWork,
};

/// The maximum number of connections that read concurrently. Further readers wait, so that they do not take
/// all threads for blocking work.
const MAX_READERS: usize = 4;

/// The connections of a store that read.
#[derive(Debug)]
pub(super) struct Readers {
    permits: Arc<Semaphore>,
    connections: ConnectionFactory,
    idle: Arc<Mutex<Vec<Connection>>>,
}

impl Readers {
    pub(super) fn new(connections: ConnectionFactory) -> Self {
        Self { permits: Arc::new(Semaphore::new(MAX_READERS)), connections, idle: Arc::default() }
    }

    pub(super) async fn read<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> Result<T, StoreError> {
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
            return Err(StoreError::Closed);
        };
        let (connections, idle) = (self.connections.clone(), Arc::clone(&self.idle));
        let reading = tokio::task::spawn_blocking(move || {
            // The thread holds the permit, so that a fifth reader cannot start after a caller was dropped.
            let _permit = permit;
            let idle_reader = lock(&idle).pop();
            let mut connection = idle_reader.map_or_else(|| connections.reader(), Ok)?;
            // Use one transaction, so that all statements see the same rows.
            connection.execute_batch("begin").map_err(|error| sqlite_error(action, error))?;
            let read = SqlSession::new(&mut connection, action).run(operation);
            // A connection that cannot end its transaction is dropped.
            if connection.execute_batch("commit").is_ok() {
                lock(&idle).push(connection);
            }
            read
        });
        reading.await.map_err(|error| StoreError::database(action, DatabaseFailure::Other, error))?
    }

    /// Waits for the readers, and closes their connections.
    pub(super) async fn close(&self) {
        // All permits are free only after the last reader has ended.
        if let Ok(all) = self.permits.acquire_many(u32::try_from(MAX_READERS).unwrap_or(u32::MAX)).await {
            self.permits.close();
            drop(all);
        }
        lock(&self.idle).clear();
    }
}

fn lock(idle: &Mutex<Vec<Connection>>) -> std::sync::MutexGuard<'_, Vec<Connection>> {
    // A panic cannot leave the list in an invalid state.
    idle.lock().unwrap_or_else(PoisonError::into_inner)
}
