//! [`Store`]: a store over a database. It brings each method of [`RunStore`] into one transaction.

use async_trait::async_trait;
use futures_util::{FutureExt as _, future::BoxFuture};

use crate::{
    error::StoreError,
    json::Json,
    model::{
        Approval, ApprovalFilter, CallFilter, CommitStep, Decision, Effect, EffectBegin, EffectEnd,
        InboxEntry, LeaseGuard, NewApproval, NewCall, NewEffect, NewInboxEntry, NewRun, Page, PageRequest,
        PendingCall, Resolution, Run, RunFilter, RunLease, RunSummary, Step, StoredMessage, TimeOut,
    },
    operations,
    sql::{Backend, Operation, Sql},
    store::{AgeCursor, RunStore},
};

/// A store over a database.
#[derive(Debug)]
pub(crate) struct Store<B>(pub(crate) B);

/// Gives the closure its type, so that the compiler knows that it works for every lifetime.
fn operation<T, F>(run: F) -> Operation<T>
where
    F: for<'a> FnOnce(&'a mut (dyn Sql + 'a)) -> BoxFuture<'a, Result<T, StoreError>> + Send + 'static,
{
    Box::new(run)
}

/// Implements methods of [`RunStore`] by the operations of the same name. A text is passed as a `String`, because the
/// operation may outlive the caller's future.
macro_rules! methods {
    ($(
        $kind:ident $name:ident($($argument:ident: $type:ty $(=> $owned:ident)?),*) -> $output:ty, $doing:literal;
    )+) => {
        #[async_trait]
        impl<B: Backend + std::fmt::Debug> RunStore for Store<B> {
            $(
                async fn $name(&self, $($argument: $type),*) -> Result<$output, StoreError> {
                    $($(let $argument = $argument.$owned();)?)*
                    let operation = operation(move |sql| operations::$name(sql, $($argument),*).boxed());
                    self.0.$kind($doing, operation).await
                }
            )+

            async fn close(&self) {
                self.0.close().await;
            }
        }
    };
}

methods! {
    write create_run(run: NewRun) -> (), "add a run";
    read run(id: &str => to_owned) -> Run, "read a run";
    read runs(filter: RunFilter, page: PageRequest<AgeCursor>) -> Page<RunSummary, AgeCursor>, "list runs";
    write acquire_lease(guard: LeaseGuard, until: i64) -> RunLease, "take the lease of a run";
    write renew_lease(guard: LeaseGuard, until: i64) -> RunLease, "renew the lease of a run";
    write reopen_run(guard: LeaseGuard, until: i64, version: i64, state: Json) -> RunLease, "open a run again";
    write release_lease(run: &str => to_owned, owner: &str => to_owned) -> (), "release the lease of a run";
    write request_cancel(run: &str => to_owned, now: i64) -> (), "ask that a run end";
    write commit_step(commit: CommitStep) -> i64, "commit a step";
    read messages(run: &str => to_owned, page: PageRequest<i64>) -> Page<StoredMessage, i64>, "read messages";
    read steps(run: &str => to_owned, page: PageRequest<i64>) -> Page<Step, i64>, "list steps";
    write begin_effect(guard: LeaseGuard, effect: NewEffect) -> EffectBegin, "begin an effect";
    write finish_effect(guard: LeaseGuard, end: EffectEnd) -> (), "finish an effect";
    read effects(run: &str => to_owned, page: PageRequest<i64>) -> Page<Effect, i64>, "list effects";
    write add_call(guard: LeaseGuard, call: NewCall) -> (), "add a call";
    write time_out_call(id: &str => to_owned, now: i64) -> TimeOut, "stop waiting for a call";
    write resolve_call(id: &str => to_owned, result: Json, now: i64) -> Resolution, "resolve a call";
    write cancel_call(id: &str => to_owned, now: i64) -> bool, "cancel a call";
    write expire_calls(now: i64, at_most: u32) -> Vec<String>, "expire calls";
    read call(id: &str => to_owned) -> PendingCall, "read a call";
    read calls(filter: CallFilter, page: PageRequest<AgeCursor>) -> Page<PendingCall, AgeCursor>, "list calls";
    write add_approval(guard: LeaseGuard, approval: NewApproval) -> (), "add an approval";
    write decide_approval(id: &str => to_owned, hash: &str => to_owned, decision: Decision) -> Approval,
        "decide an approval";
    write expire_approvals(now: i64, at_most: u32) -> Vec<String>, "expire approvals";
    read approval(id: &str => to_owned) -> Approval, "read an approval";
    read approvals(filter: ApprovalFilter, page: PageRequest<AgeCursor>) -> Page<Approval, AgeCursor>,
        "list approvals";
    write push_inbox(entry: NewInboxEntry) -> i64, "send to an inbox";
    read inbox(agent: &str => to_owned, page: PageRequest<i64>) -> Page<InboxEntry, i64>, "read an inbox";
    write consume_inbox(agent: &str => to_owned, up_to: i64, now: i64) -> u64, "consume entries of an inbox";
    write remove_ended_before(time: i64, at_most: u32) -> u64, "remove runs that have ended";
    read ping() -> (), "read";
}
