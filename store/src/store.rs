//! [`RunStore`]: a store of runs, for processes that work on runs, gateways and the command line.

use std::sync::Arc;

use async_trait::async_trait;
use tokio::sync::broadcast;

use crate::{
    error::StoreError,
    json::Json,
    model::{
        ApprovalFilter, CallFinish, CallStart, CommitStep, ExternalCallFilter, InboxEntry, LeaseGuard,
        NewApprovalRequest, NewExternalCall, NewInboxEntry, NewRun, NewStartedCall, Page, PageRequest,
        ResultDelivery, Run, RunFilter, RunLease, RunSummary, StartedCall, Step, StoredAnswer,
        StoredApproval, StoredExternalCall, StoredMessage, TimeOutOutcome,
    },
};

/// The position of a row in a listing by age: when it was created, and its id.
pub type AgeCursor = (i64, String);

/// A store of runs. All processes that open the same place see the same runs.
///
/// Ids and times come from the caller: a time is in milliseconds since the Unix epoch, and the clock of the database is
/// not read. Each method is one transaction. Its changes are on the disk when it returns.
///
/// # Errors
/// Each method can fail with [`StoreError::Database`], [`StoreError::Closed`], [`StoreError::Name`],
/// [`StoreError::Nul`] and [`StoreError::Limit`]. A method's own section names further errors, or
/// [`StoreError::Database`] if there are none.
///
/// # Cancellation
/// If a future is dropped before it is ready, either all of its changes were written or none.
#[async_trait]
pub trait RunStore: Send + Sync + std::fmt::Debug {
    /// Adds a run, with version 1.
    ///
    /// # Errors
    /// [`StoreError::AlreadyExists`]; [`StoreError::InboxConsumed`] for entries that another run or step has consumed.
    async fn create_run(&self, run: NewRun) -> Result<(), StoreError>;

    /// Returns a run with its state.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no run has this id.
    async fn run(&self, id: &str) -> Result<Run, StoreError>;

    /// Lists runs, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn runs(
        &self,
        filter: RunFilter,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<RunSummary, AgeCursor>, StoreError>;

    /// Takes the lease of a run until this time, if no other owner has it. An owner can acquire its own lease again.
    ///
    /// The lease and the version together keep two processes from driving one run. Owners on machines whose clocks
    /// differ can take a lease too early; the version then lets only one of them commit.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Leased`], [`StoreError::Ended`].
    async fn acquire_lease(&self, guard: LeaseGuard, until: i64) -> Result<RunLease, StoreError>;

    /// Extends a lease that has not expired. A renewal never shortens a lease.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::LeaseLost`].
    async fn renew_lease(&self, guard: LeaseGuard, until: i64) -> Result<RunLease, StoreError>;

    /// Opens a run that has ended, for a further prompt, and takes its lease. `state` replaces the run's
    /// state, and a request to cancel the run is cleared.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Conflict`]; [`StoreError::StillOpen`] for a run that has not ended.
    async fn reopen_run(
        &self,
        guard: LeaseGuard,
        until: i64,
        version: i64,
        state: Json,
    ) -> Result<RunLease, StoreError>;

    /// Gives the lease back. It has no effect if the lease is no longer the owner's.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn release_lease(&self, run: &str, owner: &str) -> Result<(), StoreError>;

    /// Requests that a run end. The process that drives it reads this in [`RunSummary::cancel_requested_at`]. A
    /// repeated request keeps the time of the first.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::Ended`].
    async fn request_cancel(&self, run: &str, now: i64) -> Result<(), StoreError>;

    /// Writes all changes of a step, and returns the new version of the run.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::LeaseLost`], [`StoreError::Conflict`], [`StoreError::Ended`].
    async fn commit_step(&self, commit: CommitStep) -> Result<i64, StoreError>;

    /// Lists the messages of a run, in order. The cursor is an ordinal.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no run has this id.
    async fn messages(
        &self,
        run: &str,
        page: PageRequest<i64>,
    ) -> Result<Page<StoredMessage, i64>, StoreError>;

    /// Lists the steps of a run, in order. The cursor is an ordinal.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no run has this id.
    async fn steps(&self, run: &str, page: PageRequest<i64>) -> Result<Page<Step, i64>, StoreError>;

    /// Records that a call is about to begin, and returns whether it may. The process asks before each call
    /// that has effects.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::LeaseLost`].
    async fn start_call(&self, guard: LeaseGuard, call: NewStartedCall) -> Result<CallStart, StoreError>;

    /// Writes the result of a call that has begun.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], even if the call has not begun; [`StoreError::LeaseLost`];
    /// [`StoreError::AlreadyExists`] if it has finished before.
    async fn finish_call(&self, guard: LeaseGuard, end: CallFinish) -> Result<(), StoreError>;

    /// Lists the started calls of a run, in the order in which they began. The cursor is a position in this order.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no run has this id.
    async fn started_calls(
        &self,
        run: &str,
        page: PageRequest<i64>,
    ) -> Result<Page<StartedCall, i64>, StoreError>;

    /// Adds a call whose result comes from outside.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::LeaseLost`], [`StoreError::AlreadyExists`]; [`StoreError::CallClosed`]
    /// for a status that takes no result.
    async fn add_external_call(&self, guard: LeaseGuard, call: NewExternalCall) -> Result<(), StoreError>;

    /// Stops waiting for a call: its result will come through the inbox. If the result came first, it is
    /// returned.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no call has this id.
    async fn time_out_external_call(&self, id: &str, now: i64) -> Result<TimeOutOutcome, StoreError>;

    /// Stores the result of a call. A waiting run gets it inline, any other run through its agent's inbox, as
    /// an entry [`TOOL_RESULT`](crate::TOOL_RESULT). A call gets one result.
    ///
    /// # Errors
    /// [`StoreError::NotFound`]; [`StoreError::CallClosed`], even for an expired call that [`Self::expire_external_calls`] has
    /// not marked yet. With a full inbox the call stays as it was.
    async fn resolve_external_call(
        &self,
        id: &str,
        result: Json,
        now: i64,
    ) -> Result<ResultDelivery, StoreError>;

    /// Cancels a call, unless it is closed. Returns whether it was open.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no call has this id.
    async fn cancel_external_call(&self, id: &str, now: i64) -> Result<bool, StoreError>;

    /// Marks open calls whose expiry time has passed, at most this many, and returns their ids. If it returns
    /// fewer than `at_most`, none are left.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn expire_external_calls(&self, now: i64, at_most: u32) -> Result<Vec<String>, StoreError>;

    /// Returns a call.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no call has this id.
    async fn external_call(&self, id: &str) -> Result<StoredExternalCall, StoreError>;

    /// Lists calls, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn external_calls(
        &self,
        filter: ExternalCallFilter,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<StoredExternalCall, AgeCursor>, StoreError>;

    /// Adds a request for an approval.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::LeaseLost`], [`StoreError::AlreadyExists`].
    async fn add_approval(&self, guard: LeaseGuard, approval: NewApprovalRequest) -> Result<(), StoreError>;

    /// Answers a request for an approval, once, if it still waits and is bound to this hash. Returns it with the answer.
    ///
    /// # Errors
    /// [`StoreError::NotFound`], [`StoreError::OtherHash`]; [`StoreError::ApprovalClosed`], even for a request that
    /// has expired and is not marked yet.
    async fn answer_approval(
        &self,
        id: &str,
        hash: &str,
        answer: StoredAnswer,
    ) -> Result<StoredApproval, StoreError>;

    /// Marks requests whose expiry time has passed, as [`Self::expire_external_calls`] does for calls.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn expire_approvals(&self, now: i64, at_most: u32) -> Result<Vec<String>, StoreError>;

    /// Returns a request for an approval, with its answer.
    ///
    /// # Errors
    /// [`StoreError::NotFound`] if no request has this id.
    async fn approval(&self, id: &str) -> Result<StoredApproval, StoreError>;

    /// Lists requests for approvals, the newest first.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn approvals(
        &self,
        filter: ApprovalFilter,
        page: PageRequest<AgeCursor>,
    ) -> Result<Page<StoredApproval, AgeCursor>, StoreError>;

    /// Sends an entry to an agent's inbox, and returns its ordinal.
    ///
    /// # Errors
    /// [`StoreError::Limit`] if the inbox is full.
    async fn push_inbox(&self, entry: NewInboxEntry) -> Result<i64, StoreError>;

    /// Lists the entries of an agent's inbox that no step has consumed, in order. The cursor is an ordinal.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn inbox(&self, agent: &str, page: PageRequest<i64>) -> Result<Page<InboxEntry, i64>, StoreError>;

    /// Consumes the entries up to this ordinal, and returns their number. A step does the same in its own transaction,
    /// with [`CommitStep::consumed_inbox`].
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn consume_inbox(&self, agent: &str, up_to: i64, now: i64) -> Result<u64, StoreError>;

    /// Removes runs that have ended and were last changed before this time, with all that belongs to them, at most this
    /// many, and returns their number. Runs with an open call stay. Entries of inboxes that were consumed before this
    /// time are removed too, at most as many. If it removes fewer runs than `at_most`, none are
    /// left.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn remove_ended_before(&self, time: i64, at_most: u32) -> Result<u64, StoreError>;

    /// Reads from the database, so that a readiness probe knows whether it answers.
    ///
    /// # Errors
    /// [`StoreError::Database`] if the database fails.
    async fn ping(&self) -> Result<(), StoreError>;

    /// Streams the ids of calls and approvals, each when this process has answered it: resolved, timed out,
    /// cancelled or decided. Answers of other processes, and calls that expire, are not among them.
    fn answers(&self) -> broadcast::Receiver<Arc<str>>;

    /// Finishes the writes that were accepted, and closes all connections. Every later call fails with
    /// [`StoreError::Closed`].
    async fn close(&self);
}
