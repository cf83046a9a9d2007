//! The thread that writes. It combines all waiting writes into one transaction, so that they share one sync
//! of the disk, and answers each after the commit.

use std::{
    sync::{Arc, Mutex, PoisonError},
    thread::JoinHandle,
};

use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use super::{classify, session::SqlSession};
use crate::{
    error::{DatabaseFailure, StoreError},
    sql::TransactionWork,
};

/// The maximum number of writes that wait. Further callers wait until there is room.
const MAX_WAITING: usize = 1024;

/// The maximum number of writes of one transaction, so that the first does not wait long for the others.
const MAX_GROUP: usize = 256;

/// The name of the thread.
const THREAD_NAME: &str = "store-writer";

/// Sends writes to the writer thread.
#[derive(Debug)]
pub(super) struct Writer {
    jobs: Mutex<Option<mpsc::Sender<Box<dyn Job>>>>,
    thread: Arc<Mutex<Option<JoinHandle<()>>>>,
}

/// A write, without the type of its result.
trait Job: Send {
    /// Makes the changes in an open transaction, and keeps the result. Returns `false` if the write failed and must be
    /// rolled back.
    fn run(&mut self, connection: &mut Connection) -> bool;

    /// Returns the failure of the database, if it is the reason.
    fn failure(&self) -> Option<DatabaseFailure>;

    /// Answers with the result.
    fn answer(self: Box<Self>);

    /// Answers that the changes were lost, unless the write itself had failed.
    fn fail(self: Box<Self>, group_failure: &GroupFailure);
}

/// The reason why the changes of a group are lost. Each write of the group gets it.
#[derive(Debug, Clone, thiserror::Error)]
enum GroupFailure {
    #[error(transparent)]
    Sqlite(Arc<rusqlite::Error>),
    #[error("another write has ended the transaction")]
    TransactionEnded(DatabaseFailure),
}

impl GroupFailure {
    fn failure(&self) -> DatabaseFailure {
        match self {
            Self::Sqlite(error) => classify(error),
            Self::TransactionEnded(failure) => *failure,
        }
    }
}

impl From<rusqlite::Error> for GroupFailure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(Arc::new(error))
    }
}

/// A write that waits for its group, then its result.
struct QueuedWrite<T> {
    action: &'static str,
    /// `None` once it has run.
    operation: Option<TransactionWork<T>>,
    result: Option<Result<T, StoreError>>,
    reply: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send> Job for QueuedWrite<T> {
    fn run(&mut self, connection: &mut Connection) -> bool {
        let Some(operation) = self.operation.take() else { return false };
        let result = SqlSession::new(connection, self.action).run(operation);
        let is_done = result.is_ok();
        self.result = Some(result);
        is_done
    }

    fn failure(&self) -> Option<DatabaseFailure> {
        self.result.as_ref()?.as_ref().err()?.failure()
    }

    fn answer(self: Box<Self>) {
        let Self { result, reply, .. } = *self;
        // The caller may be gone.
        let _ = reply.send(result.unwrap_or(Err(StoreError::Closed)));
    }

    fn fail(self: Box<Self>, group_failure: &GroupFailure) {
        let Self { action, result, reply, .. } = *self;
        let result = match result {
            Some(Err(error)) => Err(error),
            // Even a write that succeeded is lost, because the whole group is rolled back.
            _ => Err(StoreError::database(action, group_failure.failure(), group_failure.clone())),
        };
        // The caller may be gone.
        let _ = reply.send(result);
    }
}

impl Writer {
    /// Starts the thread. It ends when the store is dropped or closed, after the writes that wait.
    pub(super) fn start(connection: Connection) -> Result<Self, StoreError> {
        let (jobs, waiting) = mpsc::channel(MAX_WAITING);
        let thread = std::thread::Builder::new()
            .name(THREAD_NAME.to_owned())
            .spawn(move || write_groups(connection, waiting))
            .map_err(|error| StoreError::database("start its thread", DatabaseFailure::Other, error))?;
        Ok(Self { jobs: Mutex::new(Some(jobs)), thread: Arc::new(Mutex::new(Some(thread))) })
    }

    pub(super) async fn write<T: Send + 'static>(
        &self,
        action: &'static str,
        operation: TransactionWork<T>,
    ) -> Result<T, StoreError> {
        // Clone the sender, so that the lock is not held while the channel is full.
        let jobs = self.jobs.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(jobs) = jobs else { return Err(StoreError::Closed) };
        let (reply, answer) = oneshot::channel();
        let write = QueuedWrite { action, operation: Some(operation), result: None, reply };
        if jobs.send(Box::new(write)).await.is_err() {
            return Err(StoreError::Closed);
        }
        // The thread ends only after the last sender is gone, so hold none during the wait.
        drop(jobs);
        answer.await.unwrap_or(Err(StoreError::Closed))
    }

    /// Waits for the writes that were accepted, and for the end of the thread.
    pub(super) async fn close(&self) {
        self.jobs.lock().unwrap_or_else(PoisonError::into_inner).take();
        let thread = Arc::clone(&self.thread);
        // `join` blocks until the thread has done the writes that it accepted.
        let joining = tokio::task::spawn_blocking(move || {
            let thread = thread.lock().unwrap_or_else(PoisonError::into_inner).take();
            thread.map(JoinHandle::join)
        });
        if !matches!(joining.await, Ok(None | Some(Ok(())))) {
            tracing::error!("the thread that writes the store has failed");
        }
    }
}

fn write_groups(mut connection: Connection, mut waiting: mpsc::Receiver<Box<dyn Job>>) {
    while let Some(first) = waiting.blocking_recv() {
        let mut group = vec![first];
        while group.len() < MAX_GROUP
            && let Ok(next) = waiting.try_recv()
        {
            group.push(next);
        }
        let group_failure = write_group(&mut connection, &mut group).err();
        for job in group {
            match &group_failure {
                None => job.answer(),
                Some(group_failure) => job.fail(group_failure),
            }
        }
    }
}

/// Writes a group in one transaction. An error means that no change of the group is kept.
fn write_group(connection: &mut Connection, group: &mut [Box<dyn Job>]) -> Result<(), GroupFailure> {
    // `immediate` waits for the locks of other processes. A transaction that reads first cannot wait later.
    connection.prepare_cached("begin immediate")?.execute([])?;
    let written = write_in_transaction(connection, group);
    // In autocommit mode, SQLite has already rolled the transaction back.
    if written.is_err() && !connection.is_autocommit() {
        connection.prepare_cached("rollback")?.execute([])?;
    }
    written
}

fn write_in_transaction(connection: &mut Connection, group: &mut [Box<dyn Job>]) -> Result<(), GroupFailure> {
    for job in group {
        // Use a savepoint for each write, so that a failed write does not undo the others of the group.
        connection.prepare_cached("savepoint job")?.execute([])?;
        if !job.run(connection) {
            // A failure such as a full disk can end the whole transaction, with the changes of all jobs before.
            if connection.is_autocommit() {
                let failure = job.failure().unwrap_or(DatabaseFailure::Other);
                return Err(GroupFailure::TransactionEnded(failure));
            }
            connection.prepare_cached("rollback to job")?.execute([])?;
        }
        connection.prepare_cached("release job")?.execute([])?;
    }
    connection.prepare_cached("commit")?.execute([])?;
    Ok(())
}
