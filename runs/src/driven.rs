//! [`DrivenRun`]: a run that this process drives. It implements the store of the run's loop, renews the
//! lease, and writes each call before its first effect.

mod calls;

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_trait::async_trait;
use portcullis_agent::{AgentEnd, AgentHandle, ConversationError, MessageStore, RunState, Usage};
use portcullis_store::{
    CommitStep, DatabaseFailure, FinishedCall, Json, LeaseGuard, NewStartedCall, RunLease, RunStatus,
    RunStore, StepRecord, StoreError, StoredMessage,
};
use portcullis_tools::{Caller, ToolRegistry, policy::FlowLabel};
use portcullis_types::{Message, ToolResult};
use tokio::{sync::Mutex as AsyncMutex, task::JoinSet};

use crate::{
    RunDriver, RunError, RunId, RunTotals, StoredState,
    clock::{milliseconds, now},
    pages::all_rows,
};

/// After this time without renewal a lease expires: 30 s. If it is unknown whether a run's process has died,
/// others wait this long.
pub const LEASE_TTL: Duration = Duration::from_secs(30);

/// How often a lease is renewed, and a request to cancel is looked for: 2 s.
pub const LEASE_RENEWAL_INTERVAL: Duration = Duration::from_secs(2);

// A late renewal, or a single failed one, must not lose the lease.
const _: () = assert!(LEASE_RENEWAL_INTERVAL.as_millis() * 4 <= LEASE_TTL.as_millis());

/// The pauses before a write is retried, if the database could not be reached or was busy.
const PAUSES: [Duration; 5] = [
    Duration::from_millis(200),
    Duration::from_millis(500),
    Duration::from_secs(1),
    Duration::from_secs(3),
    Duration::from_secs(6),
];

/// The maximum length of a step's summary, in characters. Listings show it on one line.
const MAX_SUMMARY_CHARS: usize = 200;

/// A run that this process drives.
#[derive(Debug)]
pub struct DrivenRun {
    store: Arc<dyn RunStore>,
    process: Arc<RunDriver>,
    id: RunId,
    registry: Arc<ToolRegistry>,
    caller: Caller,
    started_at: Instant,
    totals_before: RunTotals,
    /// The calls of the interrupted step that had begun, by id.
    interrupted_calls: HashMap<String, InterruptedCall>,
    /// The calls that have begun in this process, and whether their ends are written.
    started_calls: Mutex<HashMap<String, bool>>,
    /// The repeatable calls that have begun in this process, if they are written with their step.
    repeatable: Option<Mutex<HashMap<String, (NewStartedCall, i64)>>>,
    /// The point at which the loop resumes, until [`Self::take_resume_point`] takes it.
    resume_point: Mutex<Option<ResumePoint>>,
    is_cancel_requested: bool,
    progress: AsyncMutex<Progress>,
}

/// The point at which the loop resumes a run.
#[derive(Debug)]
struct ResumePoint {
    /// The state after the last stored step.
    state: RunState,
    /// A prompt that arrived in the meantime.
    prompt: Option<Message>,
}

/// An interrupted call: its stored result, or `Unknown`.
#[derive(Debug, Clone)]
pub(crate) enum InterruptedCall {
    /// The call has this result.
    Finished(Box<ToolResult>),
    /// The effects of the call are unknown, and it must not be repeated.
    Unknown,
}

#[derive(Debug)]
struct Progress {
    version: i64,
    /// The messages of the step. They are written with its state.
    messages: Vec<Json>,
    /// The ordinal of the last inbox entry that the step has taken.
    consumed_inbox: Option<i64>,
    /// The calls that are written with the step.
    finished_calls: Vec<FinishedCall>,
    next_step: &'static str,
    next_calls: usize,
    step_started_at: i64,
    totals: RunTotals,
}

impl DrivenRun {
    /// Creates the value for a run whose lease this process holds.
    pub(crate) async fn new(
        (store, process): (Arc<dyn RunStore>, Arc<RunDriver>),
        (id, lease, state, prompt): (RunId, RunLease, StoredState, Option<Message>),
        (registry, caller): (Arc<ToolRegistry>, Caller),
    ) -> Result<Self, RunError> {
        let (interrupted_calls, labels) = calls::read_interrupted_calls(&*store, &id, &state.run).await?;
        registry.add_run_labels(&caller, labels);
        let progress = Progress {
            version: lease.version,
            messages: Vec::new(),
            finished_calls: Vec::new(),
            consumed_inbox: None,
            next_step: state.run.next_step(),
            next_calls: state.run.next_calls().count(),
            step_started_at: now(),
            totals: state.totals,
        };
        Ok(Self {
            store,
            process,
            id,
            registry,
            caller,
            started_at: Instant::now(),
            totals_before: state.totals,
            interrupted_calls,
            started_calls: Mutex::default(),
            repeatable: None,
            resume_point: Mutex::new(Some(ResumePoint { state: state.run, prompt })),
            is_cancel_requested: lease.cancel_requested_at.is_some(),
            progress: AsyncMutex::new(progress),
        })
    }

    /// Writes repeatable calls only together with the step that has their results. If the process dies
    /// earlier, they run again. Only for a caller that takes the whole step in this process.
    pub(crate) fn with_repeatable_calls_in_steps(self) -> Self {
        Self { repeatable: Some(Mutex::default()), ..self }
    }

    /// Returns the run's id.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn RunStore> {
        &self.store
    }

    /// Returns the state to resume from, for [`AgentLoop::resume`](portcullis_agent::AgentLoop::resume), and queues a
    /// waiting prompt on `handle`. Returns `None` after the first call.
    #[must_use]
    pub fn take_resume_point(&self, handle: &AgentHandle) -> Option<RunState> {
        let ResumePoint { state, prompt } =
            self.resume_point.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        // The queue is empty, so it has room.
        let _ = prompt.map(|prompt| handle.steer_with(prompt));
        Some(state)
    }

    /// Renews the lease until the returned watch is dropped. Cancels the loop if another process has
    /// requested it, or if the lease is lost.
    #[must_use]
    pub fn keep_lease(self: &Arc<Self>, handle: AgentHandle) -> LeaseWatch {
        let run = Arc::clone(self);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            if run.is_cancel_requested {
                handle.cancel();
            }
            loop {
                tokio::time::sleep(LEASE_RENEWAL_INTERVAL).await;
                match run.renew().await {
                    Ok(lease) if lease.cancel_requested_at.is_none() => {}
                    Ok(_) => handle.cancel(),
                    // Continue: the lease survives several failed renewals.
                    Err(error) if error.failure().is_some() => {
                        tracing::warn!(error = &error as &dyn std::error::Error, "cannot renew the lease");
                    }
                    // The run has ended, or another process drives it.
                    Err(_) => handle.cancel(),
                }
            }
        });
        LeaseWatch { _tasks: tasks }
    }

    async fn renew(&self) -> Result<RunLease, StoreError> {
        let until = now() + milliseconds(LEASE_TTL);
        match self.store.renew_lease(self.guard(), until).await {
            // The lease expired because this process was suspended or the clock was changed. Take it again,
            // unless another process holds it.
            Err(StoreError::LeaseLost { .. }) => self.store.acquire_lease(self.guard(), until).await,
            renewed => renewed,
        }
    }

    /// Returns the tokens and the time of all prompts of the run.
    pub async fn totals(&self) -> RunTotals {
        self.progress.lock().await.totals
    }

    /// Releases the lease, so that another process can continue the run. Call this after the loop.
    ///
    /// # Errors
    /// [`RunError::Store`]. The lease then expires by itself.
    pub async fn release(&self) -> Result<(), RunError> {
        Ok(self.store.release_lease(self.id.as_str(), self.process.name()).await?)
    }

    pub(crate) fn registry(&self) -> &ToolRegistry {
        &self.registry
    }

    pub(crate) fn caller(&self) -> &Caller {
        &self.caller
    }

    pub(crate) fn guard(&self) -> LeaseGuard {
        LeaseGuard { run: self.id.to_string(), owner: self.process.name().to_owned(), now: now() }
    }

    /// Returns the state of an interrupted call, or `None` for a call that was not interrupted or may run
    /// again.
    pub(crate) fn interrupted_call(&self, call: &str) -> Option<&InterruptedCall> {
        self.interrupted_calls.get(call)
    }

    /// Returns whether a person had cancelled the run before this process took its lease.
    pub(crate) fn is_cancel_requested(&self) -> bool {
        self.is_cancel_requested
    }

    /// Returns the version of the run after the last step that was written.
    pub(crate) async fn version(&self) -> i64 {
        self.progress.lock().await.version
    }

    /// Writes a step, and returns the run's new version. Retries while the database is busy or cannot be reached.
    async fn commit(&self, commit: CommitStep) -> Result<i64, StoreError> {
        let mut pauses = PAUSES.iter();
        loop {
            // Each attempt needs a new guard, because the store compares the guard's time with the lease.
            let attempt = CommitStep { guard: self.guard(), ..commit.clone() };
            let error = match self.store.commit_step(attempt).await {
                Err(error) => error,
                committed => return committed,
            };
            let may_retry = match &error {
                StoreError::LeaseLost { .. } => {
                    // A changed version means that another process has taken the step in the meantime.
                    self.renew().await.is_ok_and(|lease| lease.version == commit.version)
                }
                error => matches!(
                    error.failure(),
                    Some(DatabaseFailure::Busy | DatabaseFailure::Unavailable | DatabaseFailure::TimedOut)
                ),
            };
            let Some(pause) = pauses.next().filter(|_| may_retry) else { return Err(error) };
            tokio::time::sleep(*pause).await;
            // Do not blindly repeat a write whose outcome is unknown. If the version has advanced, the state
            // shows whether this write did it. The lease may have expired while the database was unreachable,
            // and another process may have taken the step.
            if let Ok(run) = self.store.run(self.id.as_str()).await
                && run.summary.version > commit.version
            {
                let is_own = run.summary.version == commit.version + 1 && run.state == commit.state;
                return if is_own { Ok(run.summary.version) } else { Err(error) };
            }
        }
    }

    /// Ends a run that no process drives, by a step of this kind. This process holds the lease.
    pub(crate) async fn end_undriven(
        store: &dyn RunStore,
        process: &RunDriver,
        (id, lease): (&RunId, RunLease),
        (kind, status): (&str, RunStatus),
    ) -> Result<(), RunError> {
        let run = store.run(id.as_str()).await?;
        let state = StoredState::parse(run.state.as_str(), id)?;
        let (run_state, message) = state.run.clone().cancelled();
        let state = state.with_run(run_state);
        let now = now();
        let step = StepRecord {
            kind: kind.to_owned(),
            started_at: now,
            finished: now,
            summary: AgentEnd::Cancelled.to_string(),
        };
        let messages = message.iter().map(Json::of).collect::<Result<_, _>>()?;
        let commit = CommitStep {
            guard: LeaseGuard { run: id.to_string(), owner: process.name().to_owned(), now },
            version: lease.version,
            state: state.to_json()?,
            status,
            labels: run.summary.labels,
            messages,
            finished_calls: Vec::new(),
            step,
            consumed_inbox: None,
        };
        store.commit_step(commit).await?;
        Ok(())
    }
}

#[async_trait]
impl MessageStore for DrivenRun {
    async fn load(&self) -> Result<Vec<Message>, ConversationError> {
        let failed = |source: RunError| ConversationError::new("cannot read the run").with_source(source);
        let stored = all_rows(|request| self.store.messages(self.id.as_str(), request)).await;
        let parse = |message: StoredMessage| {
            serde_json::from_str(message.body.as_str()).map_err(|source| {
                failed(RunError::Malformed { id: self.id.clone(), kind: "message", source })
            })
        };
        stored.map_err(|source| failed(source.into()))?.into_iter().map(parse).collect()
    }

    async fn append(&self, messages: Vec<Message>) -> Result<(), ConversationError> {
        let messages = messages.iter().map(Json::of).collect::<Result<Vec<_>, _>>();
        let messages = messages
            .map_err(|source| ConversationError::new("cannot store a message").with_source(source))?;
        self.progress.lock().await.messages.extend(messages);
        Ok(())
    }

    async fn take_arrived_messages(&self) -> Result<Vec<Message>, ConversationError> {
        let late_results = self.late_results().await;
        let (texts, last) = late_results
            .map_err(|error| ConversationError::new("cannot read the inbox of the run").with_source(error))?;
        // The next commit consumes the entries, so that they are neither lost nor delivered twice.
        if last.is_some() {
            self.progress.lock().await.consumed_inbox = last;
        }
        Ok(texts.into_iter().map(Message::user).collect())
    }

    async fn save_state(&self, state: &RunState) -> Result<(), ConversationError> {
        // Hold the lock during the commit, so that no message joins a step that is being written.
        let mut progress = self.progress.lock().await;
        let labels = self.registry.run_labels(&self.caller);
        let usage = if state.end().is_some() { state.usage() } else { Usage::default() };
        // Add the time after each step, because another process may take the next one.
        let totals = self.totals_before.with_prompt(usage, self.started_at.elapsed());
        let stored = StoredState::new(state.clone(), &labels, totals);
        let finished = now();
        let committed = async {
            let commit = CommitStep {
                guard: self.guard(),
                version: progress.version,
                state: stored.to_json()?,
                status: status(state),
                labels: label_texts(labels.keys()),
                messages: progress.messages.clone(),
                finished_calls: progress.finished_calls.clone(),
                step: StepRecord {
                    kind: progress.next_step.to_owned(),
                    started_at: progress.step_started_at,
                    finished,
                    summary: summary(progress.next_step, progress.next_calls, state),
                },
                consumed_inbox: progress.consumed_inbox.map(|up_to| (self.id.to_string(), up_to)),
            };
            self.commit(commit).await
        };
        let version = committed
            .await
            .map_err(|error| ConversationError::new("cannot store the run").with_source(error))?;
        // Replace the progress only after the commit, so that a failed step loses no message.
        *progress = Progress {
            version,
            messages: Vec::new(),
            finished_calls: Vec::new(),
            consumed_inbox: None,
            next_step: state.next_step(),
            next_calls: state.next_calls().count(),
            step_started_at: finished,
            totals,
        };
        Ok(())
    }
}

/// Renews a lease until it is dropped.
#[derive(Debug)]
pub struct LeaseWatch {
    /// Dropping the set aborts its task.
    _tasks: JoinSet<()>,
}

fn label_texts<'a>(labels: impl Iterator<Item = &'a FlowLabel>) -> Vec<String> {
    labels.map(ToString::to_string).collect()
}

/// Returns the status of a run with this state.
pub(crate) fn status(state: &RunState) -> RunStatus {
    match state.end() {
        None => RunStatus::Running,
        Some(AgentEnd::Answer { .. }) => RunStatus::Completed,
        Some(AgentEnd::Cancelled) => RunStatus::Cancelled,
        Some(
            AgentEnd::MaxIterations { .. }
            | AgentEnd::Length { .. }
            | AgentEnd::Repeated { .. }
            | AgentEnd::Provider { .. }
            | AgentEnd::Internal { .. },
        ) => RunStatus::Failed,
    }
}

/// Describes how a step ended, in one line.
fn summary(step: &str, calls: usize, state: &RunState) -> String {
    let text = match (step, state.next_step()) {
        (_, "ended") => state.end().map(ToString::to_string).unwrap_or_default(),
        ("setup", _) => "stored the prompt".to_owned(),
        (_, "run_tools") => {
            let tools: Vec<&str> = state.next_calls().map(|call| &*call.tool).collect();
            format!("asked for {}", tools.join(", "))
        }
        ("run_tools", _) => format!("has {calls} result{}", if calls == 1 { "" } else { "s" }),
        ("finalize", _) => "has a further prompt".to_owned(),
        _ => "answered".to_owned(),
    };
    // Replace control characters: a listing shows the line at a terminal.
    text.chars().take(MAX_SUMMARY_CHARS).map(|c| if c.is_control() { ' ' } else { c }).collect()
}
