//! [`Store`]: a store over a database. It runs each method of [`RunStore`] and [`SpaceStore`] in one
//! transaction.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::{FutureExt as _, future::BoxFuture};
use tokio::sync::broadcast;

use crate::{
    error::StoreError,
    json::Json,
    model::{
        ApprovalFilter, CallFinish, CallStart, CallWithMessage, Change, ChangeResult, CommitStep, DuePlan,
        Event, EventBounds, ExternalCallFilter, InboxEntry, LeaseGuard, Member, NewApprovalRequest, NewEvent,
        NewExternalCall, NewInboxEntry, NewNote, NewParticipant, NewRun, NewSpace, NewStartedCall, Note,
        NoteKind, Page, PageRequest, Participant, ParticipantKind, ParticipantUpdate, ResolveOutcome,
        ResultDelivery, Run, RunFilter, RunLease, RunSummary, Space, SpaceMessage, StartedCall, Step,
        StoredAnswer, StoredApproval, StoredExternalCall, StoredMessage, TimeOutOutcome, Token,
    },
    operations,
    space_store::SpaceStore,
    sql::{Sql, SqlBackend, TransactionWork},
    store::{AgeCursor, RunStore},
};

/// The maximum number of answers by which a waiter may lag behind. A slower waiter reads the store.
const MAX_UNREAD_ANSWERS: usize = 1024;

/// A store over a database.
#[derive(Debug)]
pub(crate) struct Store<B> {
    database: B,
    /// The ids of calls and approvals that this process has answered.
    answers: broadcast::Sender<Arc<str>>,
}

impl<B> Store<B> {
    pub(crate) fn new(database: B) -> Self {
        Self { database, answers: broadcast::Sender::new(MAX_UNREAD_ANSWERS) }
    }
}

/// Converts an optional text to the form that the operations take.
trait MaybeText {
    fn owned(self) -> Option<String>;
}

impl MaybeText for Option<&str> {
    fn owned(self) -> Option<String> {
        self.map(str::to_owned)
    }
}

/// Boxes a closure. The bound makes the compiler infer a closure that works for every lifetime.
fn operation<T, F>(run: F) -> TransactionWork<T>
where
    F: for<'a> FnOnce(&'a mut (dyn Sql + 'a)) -> BoxFuture<'a, Result<T, StoreError>> + Send + 'static,
{
    Box::new(run)
}

/// Implements the methods of a trait with the operations of the same name. The methods in braces are copied
/// as they are. A text is passed as a `String`, because the operation may outlive the caller's future. An
/// `answer` is a write that wakes the tasks waiting for the id in its first argument.
macro_rules! methods {
    ($interface:ident { $($other:tt)* } $(
        $kind:ident $name:ident($($argument:ident: $type:ty $(=> $owned:ident)?),*) -> $output:ty, $action:literal;
    )+) => {
        #[async_trait]
        impl<B: SqlBackend + std::fmt::Debug> $interface for Store<B> {
            $(
                async fn $name(&self, $($argument: $type),*) -> Result<$output, StoreError> {
                    $($(let $argument = $argument.$owned();)?)*
                    methods!(@run $kind self, $action, $name, ($($argument),*))
                }
            )+

            $($other)*
        }
    };
    (@run answer $store:ident, $action:literal, $name:ident, ($id:ident, $($argument:ident),*)) => {{
        // The operation takes the id, so copy it for the waiters.
        let answered: Arc<str> = $id.as_str().into();
        let operation = operation(move |sql| operations::$name(sql, $id, $($argument),*).boxed());
        let written = $store.database.write($action, operation).await;
        // Wake the waiters only after the commit, because they then read the store.
        if written.is_ok() {
            // Sending fails only without waiters.
            let _ = $store.answers.send(answered);
        }
        written
    }};
    (@run $kind:ident $store:ident, $action:literal, $name:ident, ($($argument:ident),*)) => {{
        let operation = operation(move |sql| operations::$name(sql, $($argument),*).boxed());
        $store.database.$kind($action, operation).await
    }};
}

methods! {
    RunStore {
        async fn close(&self) {
            self.database.close().await;
        }

        fn answers(&self) -> broadcast::Receiver<Arc<str>> {
            self.answers.subscribe()
        }
    }
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
    write start_call(guard: LeaseGuard, started: NewStartedCall) -> CallStart, "start a call";
    write finish_call(guard: LeaseGuard, end: CallFinish) -> (), "finish a call";
    read started_calls(run: &str => to_owned, page: PageRequest<i64>) -> Page<StartedCall, i64>, "list started calls";
    write add_external_call(guard: LeaseGuard, call: NewExternalCall) -> (), "add a call";
    answer time_out_external_call(id: &str => to_owned, now: i64) -> TimeOutOutcome, "stop waiting for a call";
    answer resolve_external_call(id: &str => to_owned, result: Json, now: i64) -> ResultDelivery, "resolve a call";
    answer cancel_external_call(id: &str => to_owned, now: i64) -> bool, "cancel a call";
    write expire_external_calls(now: i64, at_most: u32) -> Vec<String>, "expire calls";
    read external_call(id: &str => to_owned) -> StoredExternalCall, "read a call";
    read external_calls(filter: ExternalCallFilter, page: PageRequest<AgeCursor>) -> Page<StoredExternalCall, AgeCursor>, "list calls";
    write add_approval(guard: LeaseGuard, approval: NewApprovalRequest) -> (), "add an approval";
    answer answer_approval(id: &str => to_owned, hash: &str => to_owned, answer: StoredAnswer) -> StoredApproval,
        "decide an approval";
    write expire_approvals(now: i64, at_most: u32) -> Vec<String>, "expire approvals";
    read approval(id: &str => to_owned) -> StoredApproval, "read an approval";
    read approvals(filter: ApprovalFilter, page: PageRequest<AgeCursor>) -> Page<StoredApproval, AgeCursor>,
        "list approvals";
    write push_inbox(entry: NewInboxEntry) -> i64, "send to an inbox";
    read inbox(agent: &str => to_owned, page: PageRequest<i64>) -> Page<InboxEntry, i64>, "read an inbox";
    write consume_inbox(agent: &str => to_owned, up_to: i64, now: i64) -> u64, "consume entries of an inbox";
    write remove_ended_before(time: i64, at_most: u32) -> u64, "remove runs that have ended";
    read ping() -> (), "read";
}

methods! {
    SpaceStore {}
    write create_participant(participant: NewParticipant) -> (), "add a participant";
    read participant(id: &str => to_owned) -> Participant, "read a participant";
    read participants(kind: Option<ParticipantKind>, page: PageRequest<AgeCursor>) -> Page<Participant, AgeCursor>,
        "list participants";
    write update_participant(update: ParticipantUpdate) -> i64, "change a participant";
    write remove_participant(id: &str => to_owned, now: i64) -> (), "remove a participant";
    write create_space(space: NewSpace) -> (), "add a space";
    read space(id: &str => to_owned) -> Space, "read a space";
    read spaces(member: Option<&str> => owned, page: PageRequest<AgeCursor>) -> Page<Space, AgeCursor>,
        "list spaces";
    write remove_space(id: &str => to_owned, topic: &str => to_owned) -> (), "remove a space";
    write sweep_spaces(at_most: u32) -> u64, "remove what removed spaces have left";
    write add_member(space: &str => to_owned, participant: &str => to_owned, joined: i64) -> bool, "add a member";
    write remove_member(space: &str => to_owned, participant: &str => to_owned) -> bool, "remove a member";
    read members(space: &str => to_owned, page: PageRequest<AgeCursor>) -> Page<Member, AgeCursor>, "list members";
    read is_member(space: &str => to_owned, participant: &str => to_owned) -> bool, "look up a member";
    read share_space(participant: &str => to_owned, other: &str => to_owned) -> bool, "look up members";
    read space_message(id: &str => to_owned) -> SpaceMessage, "read a message";
    read call_message(call: &str => to_owned) -> Option<SpaceMessage>, "find the message of a call";
    read shown_calls(filter: ExternalCallFilter, page: PageRequest<AgeCursor>) -> Page<CallWithMessage, AgeCursor>, "list calls";
    read space_messages(space: &str => to_owned, search: Option<&str> => owned, page: PageRequest<i64>)
        -> Page<SpaceMessage, i64>, "list messages";
    write append_event(event: NewEvent) -> i64, "append an event";
    read events(topic: Option<&str> => owned, page: PageRequest<i64>) -> Page<Event, i64>, "read events";
    read event_bounds() -> EventBounds, "read the bounds of the events";
    write remove_events_before(time: i64, at_most: u32) -> u64, "remove events";
    write set_notes(agent: &str => to_owned, kind: NoteKind, notes: Vec<NewNote>, now: i64) -> (), "set notes";
    write remove_notes(agent: &str => to_owned, kind: NoteKind, ids: Vec<String>) -> u64, "remove notes";
    read notes(agent: &str => to_owned, kind: NoteKind, page: PageRequest<AgeCursor>) -> Page<Note, AgeCursor>,
        "list notes";
    write take_due_plans(now: i64, at_most: u32) -> Vec<DuePlan>, "take plans that are due";
    write add_token(token: Token) -> (), "add a token";
    read find_token(hash: &str => to_owned) -> Option<Token>, "find a token";
    read tokens(page: PageRequest<AgeCursor>) -> Page<Token, AgeCursor>, "list tokens";
    write remove_token(id: &str => to_owned) -> bool, "remove a token";
    write remove_tokens_of(subject_kind: &str => to_owned, subject: &str => to_owned) -> u64, "remove tokens";
    read inboxes_with_entries(prefix: &str => to_owned, page: PageRequest<String>) -> Page<String, String>,
        "list inboxes";
    write apply(changes: Vec<Change>) -> Vec<ChangeResult>, "write changes";
    answer resolve_external_call_with(id: &str => to_owned, result: Json, now: i64, changes: Vec<Change>) -> ResolveOutcome,
        "resolve a call";
}
