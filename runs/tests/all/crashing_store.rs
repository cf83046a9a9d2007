//! A store whose process dies before or just after a chosen write.

use std::{
    future,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use portcullis_runs::store::{
    AgeCursor, ApprovalFilter, CallFinish, CallStart, CommitStep, ExternalCallFilter, InboxEntry, Json,
    LeaseGuard, NewApprovalRequest, NewExternalCall, NewInboxEntry, NewRun, NewStartedCall, Page,
    PageRequest, ResultDelivery, Run, RunFilter, RunLease, RunStore, RunSummary, StartedCall, Step,
    StoreError, StoredAnswer, StoredApproval, StoredExternalCall, StoredMessage, TimeOutOutcome,
};
use tokio::sync::Notify;

/// Whether the crash comes before or after the write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Crash {
    /// The write is not done.
    Before,
    /// The write is done, but its caller does not learn of it.
    After,
}

/// The write during which the process dies.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CrashPoint {
    /// The number of the write, counted from 0.
    pub(crate) write: usize,
    pub(crate) when: Crash,
}

/// A store whose chosen write never returns. The test then drops the futures, as a killed process would.
#[derive(Debug)]
pub(crate) struct CrashingStore {
    inner: Arc<dyn RunStore>,
    writes: AtomicUsize,
    at: CrashPoint,
    died: Arc<Notify>,
}

impl CrashingStore {
    /// Also returns the signal that the process has died.
    pub(crate) fn new(inner: Arc<dyn RunStore>, at: CrashPoint) -> (Arc<Self>, Arc<Notify>) {
        let died = Arc::new(Notify::new());
        (Arc::new(Self { inner, writes: AtomicUsize::new(0), at, died: Arc::clone(&died) }), died)
    }

    async fn write<T>(&self, write: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        if self.writes.fetch_add(1, Ordering::SeqCst) != self.at.write {
            return write.await;
        }
        if self.at.when == Crash::After {
            write.await?;
        }
        self.died.notify_one();
        future::pending().await
    }
}

/// Forwards a method: a `read` as it is, a `write` through [`CrashingStore::write`].
macro_rules! forward {
    ($($kind:ident $name:ident($($argument:ident: $type:ty),*) -> $output:ty;)+) => {
        #[async_trait]
        impl RunStore for CrashingStore {
            $(async fn $name(&self, $($argument: $type),*) -> Result<$output, StoreError> {
                forward!(@ $kind self, self.inner.$name($($argument),*))
            })+

            async fn close(&self) {
                self.inner.close().await;
            }

            fn answers(&self) -> tokio::sync::broadcast::Receiver<Arc<str>> {
                self.inner.answers()
            }
        }
    };
    (@ read $self:ident, $call:expr) => { $call.await };
    (@ write $self:ident, $call:expr) => { $self.write($call).await };
}

forward! {
    read create_run(run: NewRun) -> ();
    read run(id: &str) -> Run;
    read runs(filter: RunFilter, page: PageRequest<AgeCursor>) -> Page<RunSummary, AgeCursor>;
    write acquire_lease(guard: LeaseGuard, until: i64) -> RunLease;
    read renew_lease(guard: LeaseGuard, until: i64) -> RunLease;
    write reopen_run(guard: LeaseGuard, until: i64, version: i64, state: Json) -> RunLease;
    read release_lease(run: &str, owner: &str) -> ();
    read request_cancel(run: &str, now: i64) -> ();
    write commit_step(commit: CommitStep) -> i64;
    read messages(run: &str, page: PageRequest<i64>) -> Page<StoredMessage, i64>;
    read steps(run: &str, page: PageRequest<i64>) -> Page<Step, i64>;
    write start_call(guard: LeaseGuard, started: NewStartedCall) -> CallStart;
    write finish_call(guard: LeaseGuard, end: CallFinish) -> ();
    read started_calls(run: &str, page: PageRequest<i64>) -> Page<StartedCall, i64>;
    write add_external_call(guard: LeaseGuard, call: NewExternalCall) -> ();
    write time_out_external_call(id: &str, now: i64) -> TimeOutOutcome;
    write resolve_external_call(id: &str, result: Json, now: i64) -> ResultDelivery;
    write cancel_external_call(id: &str, now: i64) -> bool;
    write expire_external_calls(now: i64, at_most: u32) -> Vec<String>;
    read external_call(id: &str) -> StoredExternalCall;
    read external_calls(filter: ExternalCallFilter, page: PageRequest<AgeCursor>) -> Page<StoredExternalCall, AgeCursor>;
    write add_approval(guard: LeaseGuard, approval: NewApprovalRequest) -> ();
    write answer_approval(id: &str, hash: &str, answer: StoredAnswer) -> StoredApproval;
    write expire_approvals(now: i64, at_most: u32) -> Vec<String>;
    read approval(id: &str) -> StoredApproval;
    read approvals(filter: ApprovalFilter, page: PageRequest<AgeCursor>) -> Page<StoredApproval, AgeCursor>;
    write push_inbox(entry: NewInboxEntry) -> i64;
    read inbox(agent: &str, page: PageRequest<i64>) -> Page<InboxEntry, i64>;
    write consume_inbox(agent: &str, up_to: i64, now: i64) -> u64;
    write remove_ended_before(time: i64, at_most: u32) -> u64;
    read ping() -> ();
}
