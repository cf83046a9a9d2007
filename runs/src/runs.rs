//! [`Runs`]: starts and resumes runs.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_agent::{AgentEnd, RunState};
use portcullis_store::{
    InboxSpan, Json, LeaseGuard, NewRun, PageRequest, Run, RunFilter, RunLease, RunStatus, RunStore,
    RunSummary, StoreError, StoredMessage,
};
use portcullis_tools::{Caller, ToolRegistry, policy::FlowLabel};
use portcullis_types::{Message, MessageRole};

use crate::{
    DrivenRun, LEASE_TTL, RunDriver, RunError, RunId, RunTotals, StoredState,
    clock::{milliseconds, now},
};

/// The maximum number of attempts of [`Runs::drive`] to take a lease. An attempt fails if another process
/// changes the run after it was read.
const MAX_DRIVE_ATTEMPTS: usize = 3;

/// The prompt that a resumed run adds after a message of the model, because providers refuse a request that
/// ends with one.
const GO_ON: &str = "Go on.";

/// The runs of a store, which this process may drive.
#[derive(Debug, Clone)]
pub struct Runs {
    store: Arc<dyn RunStore>,
    process: Arc<RunDriver>,
}

/// A run, and what it works on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunSubject {
    /// The id of the run.
    pub id: RunId,
    /// The agent that the run belongs to.
    pub agent: String,
    /// The folder that the run works on, as the operator names it.
    pub workspace: String,
}

/// The parts of earlier runs that a new run takes over.
#[derive(Debug, Clone, Default)]
pub struct InheritedContext {
    /// The messages that the model reads before the first prompt.
    pub messages: Vec<Message>,
    /// The labels of what these messages have read, each with the id of the call that brought it.
    pub labels: BTreeMap<FlowLabel, String>,
    /// The inbox entries in the prompt. The run's first write consumes them, so that each is in only one run.
    pub consumed_inbox: Option<InboxSpan>,
}

/// How a run continues.
#[derive(Debug, Clone, PartialEq)]
pub enum Continuation {
    /// Continue with the interrupted step. After an end without an answer, ask the model once more.
    Resume,
    /// Continue with a further prompt. An interrupted step is taken first.
    Prompt(Message),
}

impl Runs {
    /// Creates the runs of this store, driven by this process.
    #[must_use]
    pub fn new(store: Arc<dyn RunStore>, process: RunDriver) -> Self {
        Self { store, process: Arc::new(process) }
    }

    /// Returns the store.
    #[must_use]
    pub fn store(&self) -> &Arc<dyn RunStore> {
        &self.store
    }

    /// Returns the process that drives the runs.
    pub(crate) fn process(&self) -> &Arc<RunDriver> {
        &self.process
    }

    /// Adds a run with its first prompt. No process drives it yet.
    ///
    /// # Errors
    /// [`RunError::Store`] if the run exists, or if the store fails.
    pub async fn add(&self, subject: RunSubject, prompt: Message) -> Result<(), RunError> {
        self.add_continuing(subject, prompt, InheritedContext::default()).await
    }

    /// Adds a run that continues earlier ones. No process drives it yet.
    ///
    /// # Errors
    /// [`RunError::Store`] if the run exists, if an inbox entry is already consumed, or if the store fails.
    pub async fn add_continuing(
        &self,
        subject: RunSubject,
        prompt: Message,
        before: InheritedContext,
    ) -> Result<(), RunError> {
        let RunSubject { id, agent, workspace } = subject;
        let InheritedContext { messages, labels, consumed_inbox } = before;
        let state = StoredState::new(RunState::new(prompt), &labels, RunTotals::default());
        let run = NewRun {
            id: id.to_string(),
            agent,
            workspace,
            created: now(),
            state: state.to_json()?,
            labels: labels.keys().map(ToString::to_string).collect(),
            messages: messages.iter().map(Json::of).collect::<Result<_, _>>()?,
            lease: None,
            consumed_inbox,
        };
        Ok(self.store.create_run(run).await?)
    }

    /// Returns the newest run in a workspace.
    ///
    /// # Errors
    /// [`RunError::NoRun`], [`RunError::Store`].
    pub async fn newest(&self, workspace: &str) -> Result<RunId, RunError> {
        let filter = RunFilter { workspace: Some(workspace.to_owned()), ..RunFilter::default() };
        let page = self.store.runs(filter, PageRequest::first(1)).await?;
        match page.items.into_iter().next() {
            Some(run) => run.id.parse(),
            None => Err(RunError::NoRun { workspace: workspace.to_owned() }),
        }
    }

    /// Returns a run, which must work on this workspace.
    ///
    /// # Errors
    /// [`RunError::OtherWorkspace`], [`RunError::Store`].
    pub async fn find(&self, id: &RunId, workspace: &str) -> Result<(RunSummary, StoredState), RunError> {
        let Run { summary, state } = self.store.run(id.as_str()).await?;
        if summary.workspace != workspace {
            let (other, workspace) = (summary.workspace, workspace.to_owned());
            return Err(RunError::OtherWorkspace { id: id.clone(), other, workspace });
        }
        Ok((summary, StoredState::parse(state.as_str(), id)?))
    }

    /// Fails unless the run can be resumed without a further prompt.
    ///
    /// # Errors
    /// [`RunError::AlreadyAnswered`], and the errors of [`Runs::find`].
    pub async fn ensure_resumable(&self, id: &RunId, workspace: &str) -> Result<(), RunError> {
        match self.find(id, workspace).await? {
            (summary, state) if is_answered(&summary, &state) && !self.has_late_results(id).await? => {
                Err(RunError::AlreadyAnswered { id: id.clone() })
            }
            _ => Ok(()),
        }
    }

    /// Takes the lease of a run, so that this process drives it. The labels of what the run has read apply
    /// from now on.
    ///
    /// # Errors
    /// [`RunError`], for example [`StoreError::Leased`] if another process drives the run, and [`RunError::AlreadyAnswered`]
    /// if it has ended with an answer and there is no further prompt.
    pub async fn drive(
        &self,
        subject: &RunSubject,
        next: Continuation,
        registry: Arc<ToolRegistry>,
        caller: Caller,
    ) -> Result<Arc<DrivenRun>, RunError> {
        for _ in 1..MAX_DRIVE_ATTEMPTS {
            match self.drive_once(subject, &next, &registry, &caller).await {
                Err(RunError::Store(StoreError::Conflict { .. } | StoreError::Ended { .. })) => {}
                driven => return driven,
            }
        }
        self.drive_once(subject, &next, &registry, &caller).await
    }

    async fn drive_once(
        &self,
        subject: &RunSubject,
        next: &Continuation,
        registry: &Arc<ToolRegistry>,
        caller: &Caller,
    ) -> Result<Arc<DrivenRun>, RunError> {
        let RunSubject { id, workspace, agent } = subject;
        let (summary, mut state) = self.find(id, workspace).await?;
        if summary.agent != *agent {
            return Err(RunError::OtherAgent { id: id.clone(), agent: summary.agent });
        }
        // Add the labels before taking the lease: a bad label must not lock other processes out of the run.
        registry.add_run_labels(caller, state.labels(id)?);
        let mut waiting_prompt = None;
        let lease = if summary.status.has_ended() {
            state.run = match next {
                Continuation::Prompt(prompt) => RunState::new(prompt.clone()),
                // The loop takes the late results before it asks the model.
                Continuation::Resume if self.has_late_results(id).await? => RunState::asking_again(),
                Continuation::Resume if is_answered(&summary, &state) => {
                    return Err(RunError::AlreadyAnswered { id: id.clone() });
                }
                Continuation::Resume => {
                    waiting_prompt = self.ends_with_the_model(&summary).await?.then(|| Message::user(GO_ON));
                    RunState::asking_again()
                }
            };
            let until = now() + milliseconds(LEASE_TTL);
            self.store.reopen_run(self.guard(id), until, summary.version, state.to_json()?).await?
        } else {
            if let Continuation::Prompt(prompt) = next {
                waiting_prompt = Some(prompt.clone());
                state.run = state.run.with_all_turns();
            }
            let lease = self.acquire(id).await?;
            if lease.version != summary.version {
                // Another process has driven the run since it was read, so the state is stale.
                self.store.release_lease(id.as_str(), self.process.name()).await?;
                let (expected, found) = (summary.version, lease.version);
                return Err(StoreError::Conflict { run: id.to_string(), expected, found }.into());
            }
            lease
        };
        let driven = DrivenRun::new(
            (Arc::clone(&self.store), Arc::clone(&self.process)),
            (id.clone(), lease, state, waiting_prompt),
            (Arc::clone(registry), caller.clone()),
        );
        match driven.await {
            Ok(driven) => Ok(Arc::new(driven.with_repeatable_calls_in_steps())),
            Err(error) => {
                // Release the lease, so that other processes need not wait until it expires.
                self.store.release_lease(id.as_str(), self.process.name()).await?;
                Err(error)
            }
        }
    }

    /// Returns whether late results of the run's calls wait in its inbox.
    async fn has_late_results(&self, id: &RunId) -> Result<bool, StoreError> {
        Ok(!self.store.inbox(id.as_str(), PageRequest::first(1)).await?.items.is_empty())
    }

    /// Returns whether the last message of a run is the model's: a part of an answer, which was cancelled
    /// or cut off.
    async fn ends_with_the_model(&self, run: &RunSummary) -> Result<bool, RunError> {
        let page = self.store.messages(&run.id, PageRequest::after(run.messages - 1, 1)).await?;
        let role = |message: &StoredMessage| serde_json::from_str::<Message>(message.body.as_str()).ok();
        let last = page.items.first().and_then(role);
        Ok(last
            .is_some_and(|message| message.role == MessageRole::Assistant && message.tool_calls.is_empty()))
    }

    /// Takes the lease, even from a process that has died.
    pub(crate) async fn acquire(&self, id: &RunId) -> Result<RunLease, StoreError> {
        let acquire = || self.store.acquire_lease(self.guard(id), now() + milliseconds(LEASE_TTL));
        match acquire().await {
            Err(StoreError::Leased { owner, .. }) if self.process.has_died(&owner) => {
                // Name the dead owner, so that a lease which a third process has taken in the meantime is
                // kept.
                self.store.release_lease(id.as_str(), &owner).await?;
                acquire().await
            }
            acquired => acquired,
        }
    }

    pub(crate) fn guard(&self, id: &RunId) -> LeaseGuard {
        LeaseGuard { run: id.to_string(), owner: self.process.name().to_owned(), now: now() }
    }

    /// Requests the end of a run. If no process drives the run, it ends immediately.
    ///
    /// # Errors
    /// [`RunError::Store`], for example [`StoreError::Ended`].
    pub async fn cancel(&self, id: &RunId) -> Result<RunStatus, RunError> {
        // Store the request first, so that a process which takes the lease in the meantime sees it.
        self.store.request_cancel(id.as_str(), now()).await?;
        match self.acquire(id).await {
            // The process that drives the run will end it.
            Err(StoreError::Leased { .. }) => Ok(RunStatus::Running),
            Err(StoreError::Ended { .. }) => Ok(self.store.run(id.as_str()).await?.summary.status),
            Err(error) => Err(error.into()),
            Ok(lease) => {
                let end = ("cancel", RunStatus::Cancelled);
                DrivenRun::end_undriven(&*self.store, &self.process, (id, lease), end).await?;
                Ok(RunStatus::Cancelled)
            }
        }
    }
}

/// Returns whether the run has the model's answer, which the token limit may have cut off.
fn is_answered(summary: &RunSummary, state: &StoredState) -> bool {
    summary.status == RunStatus::Completed || matches!(state.run.end(), Some(AgentEnd::Length { .. }))
}
