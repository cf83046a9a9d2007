//! [`Stepper`]: takes single steps of runs, for a caller that decides elsewhere which step comes next. Each
//! step may run in another process.
//!
//! The steps are those of the loop, and the store has the same content as after a run in one process. The
//! only difference: each call of a turn runs on its own, and the turn's step then collects the results.

use std::{
    collections::HashMap,
    fmt,
    pin::pin,
    sync::{Arc, Mutex, PoisonError, Weak},
};

use portcullis_agent::{
    AgentConfig, AgentEnd, AgentHandle, AgentLoop, ExecutionStrategy, Provider, RunState, ToolExecutor,
};
use portcullis_store::{Entity, NewApprovalRequest, StoreError, StoredAnswer};
use portcullis_tools::{CallStartListener, Caller, RegistryExecutor, ToolRegistry, policy::FlowLabel};
use portcullis_types::{CancellationToken, Message, ToolResult};
use tokio::sync::Mutex as AsyncMutex;

use crate::{
    ApprovalRequestFn, DrivenRun, ModelIdentity, RecordedModel, RunError, RunId, RunSubject, Runs,
    StoredApprover, StoredExecutor, StoredExternalCalls,
    driven::{InterruptedCall, status},
    step::{NextCall, NextStepInput, RunPosition, StepCallOutcome, StepOutcome},
    turn::{SkipReason, TurnExecutor, interrupt},
    turn_results::TurnResults,
};

/// The objects that the steps of a process work with.
pub struct StepParts {
    /// The registry of the tools that the model may call.
    pub registry: Arc<ToolRegistry>,
    /// The connection to the model.
    pub provider: Arc<dyn Provider>,
    /// The identity of the model in audit rows.
    pub model: ModelIdentity,
    /// The settings of the loop. The run's id and the strategy are set for each step: calls run one at a
    /// time.
    pub config: AgentConfig,
    /// The caller of the model's calls. Its approver has answered in advance. Without an approver, questions
    /// are asked in the store.
    pub caller: Caller,
    /// The workspace that runs must belong to.
    pub workspace: String,
    /// Labels that apply to every run, each with what brought it, for example instructions that were read
    /// from a mount.
    pub labels: Vec<(FlowLabel, String)>,
    /// A hint for denied calls that had no approver.
    pub hint: Option<&'static str>,
    /// Called for each new request for an approval, with its run. Must not block.
    pub on_approval_request: Option<RunApprovalRequestFn>,
}

/// Callback for a new request for an approval of a run. Must not block.
pub type RunApprovalRequestFn = Arc<dyn Fn(&RunId, &NewApprovalRequest) + Send + Sync>;

/// Takes steps of runs.
pub struct Stepper {
    runs: Runs,
    parts: StepParts,
    /// One lock for each run with a step in progress. All steps of a process share one lease owner, so the
    /// lease alone does not prevent concurrent steps.
    step_locks: Mutex<HashMap<RunId, Weak<AsyncMutex<()>>>>,
}

impl Stepper {
    /// Creates a stepper for these runs.
    #[must_use]
    pub fn new(runs: Runs, parts: StepParts) -> Self {
        Self { runs, parts, step_locks: Mutex::default() }
    }

    /// Returns the runs.
    #[must_use]
    pub fn runs(&self) -> &Runs {
        &self.runs
    }

    /// Adds a run with its prompt, unless the run exists.
    ///
    /// # Errors
    /// [`RunError::Store`] if the run cannot be stored.
    pub async fn begin(&self, id: &RunId, prompt: Message) -> Result<(), RunError> {
        match self.runs.add(self.subject(id), prompt).await {
            Err(RunError::Store(StoreError::AlreadyExists { entity: Entity::Run, .. })) => Ok(()),
            added => added,
        }
    }

    /// Returns the position of a run.
    ///
    /// # Errors
    /// Same as [`Runs::find`].
    pub async fn position(&self, id: &RunId) -> Result<RunPosition, RunError> {
        let (summary, state) = self.runs.find(id, &self.parts.workspace).await?;
        Ok(self.position_of(summary.version, &state.run))
    }

    /// Returns whether this process offers a tool of this name.
    #[must_use]
    pub fn offers(&self, tool: &str) -> bool {
        self.parts.registry.offers().iter().any(|offer| offer.decl.name == tool)
    }

    /// Takes the step that follows this version of the run. For a turn with calls, the step collects the
    /// results that [`Self::run_call`] has stored, and refuses calls without a result. A run that has
    /// advanced stays as it is.
    ///
    /// `keeps` may refuse an end of the run.
    ///
    /// # Errors
    /// [`RunError`], for example [`StoreError::Leased`] if another process drives the run.
    ///
    /// # Cancellation
    /// `cancel` ends the step gracefully: the request to the model is abandoned, and the run ends as cancelled.
    pub async fn take_step(
        &self,
        id: &RunId,
        version: i64,
        input: NextStepInput,
        keeps: impl Fn(&AgentEnd) -> bool + Send + Sync,
        cancel: &CancellationToken,
    ) -> Result<StepOutcome, RunError> {
        let lock = self.lock(id);
        let _turn = lock.lock().await;
        let Some(run) = self.drive(id, version).await? else {
            return Ok(StepOutcome::Taken(self.position(id).await?));
        };
        let state = resume_state(&run);
        let skip_reason =
            if run.is_cancel_requested() { Some(SkipReason::Cancelled) } else { input.skip_reason };
        let outcome = if state.next_step() == "run_tools" {
            self.collect(&run, version, state, skip_reason, keeps).await
        } else {
            let input = NextStepInput { skip_reason, ..input };
            self.step(&run, version, state, input, keeps, cancel).await
        };
        let has_ended = matches!(&outcome, Ok(StepOutcome::Taken(position)) if position.status.has_ended());
        self.release(&run, has_ended).await;
        outcome
    }

    async fn step(
        &self,
        run: &Arc<DrivenRun>,
        version: i64,
        state: RunState,
        NextStepInput { steering, skip_reason }: NextStepInput,
        keeps: impl Fn(&AgentEnd) -> bool + Send + Sync,
        cancel: &CancellationToken,
    ) -> Result<StepOutcome, RunError> {
        let mut agent = self.agent(run, self.executor(run));
        let handle = agent.handle();
        match skip_reason {
            // The message is in `steering`, unless the step does not ask the model.
            Some(SkipReason::Steered) if state.next_step() != "finalize" => {}
            Some(skip_reason) => interrupt(&handle, skip_reason),
            None => {}
        }
        for message in steering {
            // Ignore the error: a caller queues no more messages than the handle can hold.
            let _ = handle.steer_with(message);
        }
        let _lease = run.keep_lease(handle.clone());
        let mut undone = None;
        let may_save = |state: &RunState| {
            // A step that this process abandons is taken again, possibly elsewhere.
            let is_given_up = |end: &AgentEnd| *end == AgentEnd::Cancelled && cancel.is_cancelled();
            undone = state.end().filter(|end| is_given_up(end) || !keeps(end)).cloned();
            undone.is_none()
        };
        let state = cancelled_by(agent.take_step(state, may_save), cancel, &handle).await;
        match undone {
            Some(end) => Ok(StepOutcome::NotStored(end)),
            None => self.outcome_after_step(run, version, &state).await,
        }
    }

    /// Takes the step of a turn whose calls have run. It is short, so it cannot be cancelled.
    async fn collect(
        &self,
        run: &Arc<DrivenRun>,
        version: i64,
        state: RunState,
        skip_reason: Option<SkipReason>,
        keeps: impl Fn(&AgentEnd) -> bool + Send + Sync,
    ) -> Result<StepOutcome, RunError> {
        let (store, id) = (&**run.store(), run.id());
        let mut turn_results = TurnResults::read(store, id).await?;
        let results = std::mem::take(&mut turn_results.results);
        let executor = Arc::new(TurnExecutor::new(self.executor(run), Arc::clone(run), results));
        let mut agent = self.agent(run, Arc::clone(&executor) as Arc<dyn ToolExecutor>);
        let has_result = |id: &&str| executor.has_result(id);
        let last = state.runnable_calls().map(|call| &*call.id).filter(has_result).last();
        match (skip_reason, last) {
            (Some(skip_reason), Some(last)) => {
                executor.interrupt_after(last.to_owned(), skip_reason, agent.handle());
            }
            (Some(SkipReason::Cancelled), None) => agent.handle().cancel(),
            // The first call of a turn is never skipped because of a message.
            (Some(SkipReason::Steered), None) | (None, _) => {}
        }
        let mut undone = None;
        let may_save = |state: &RunState| {
            undone = state.end().filter(|end| !keeps(end)).cloned();
            undone.is_none()
        };
        let state = agent.take_step(state, may_save).await;
        if let Some(end) = undone {
            return Ok(StepOutcome::NotStored(end));
        }
        let outcome = self.outcome_after_step(run, version, &state).await?;
        if let Err(error) = turn_results.forget(store, id).await {
            // Stale results are harmless: they are keyed by call id, and the next turn removes them.
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot forget the results of a turn");
        }
        Ok(outcome)
    }

    /// Returns the position after a step that should have been stored.
    async fn outcome_after_step(
        &self,
        run: &DrivenRun,
        version: i64,
        state: &RunState,
    ) -> Result<StepOutcome, RunError> {
        let found = run.version().await;
        if found == version {
            let reason = state.end().map(ToString::to_string).unwrap_or_default();
            return Err(RunError::NotStored { id: run.id().clone(), reason });
        }
        Ok(StepOutcome::Taken(self.position_of(found, state)))
    }

    /// Runs one call of the turn that follows this version of the run, and stores its result. Calls
    /// `on_approval_request` for each new request, like [`StepParts::on_approval_request`].
    ///
    /// # Errors
    /// [`RunError`], like [`Self::take_step`].
    ///
    /// # Cancellation
    /// `cancel` ends the call gracefully.
    pub async fn run_call(
        &self,
        id: &RunId,
        version: i64,
        call: &str,
        on_approval_request: ApprovalRequestFn,
        cancel: &CancellationToken,
    ) -> Result<StepCallOutcome, RunError> {
        let lock = self.lock(id);
        let _turn = lock.lock().await;
        let Some(run) = self.drive(id, version).await? else { return Ok(StepCallOutcome::RunContinued) };
        let end = self.call(&run, call, on_approval_request, cancel).await;
        self.release(&run, false).await;
        end
    }

    async fn call(
        &self,
        run: &Arc<DrivenRun>,
        call: &str,
        on_approval_request: ApprovalRequestFn,
        cancel: &CancellationToken,
    ) -> Result<StepCallOutcome, RunError> {
        let store = &**run.store();
        let is_finished = matches!(run.interrupted_call(call), Some(InterruptedCall::Finished(_)));
        if is_finished || TurnResults::read(store, run.id()).await?.results.contains_key(call) {
            return Ok(StepCallOutcome::Stored);
        }
        let mut agent = self.agent(run, self.asking_executor(run, Some(on_approval_request)));
        let handle = agent.handle();
        let state = resume_state(run);
        let _lease = run.keep_lease(handle.clone());
        let result: Option<Arc<ToolResult>> =
            cancelled_by(agent.run_call(&state, call), cancel, &handle).await;
        let Some(result) = result else { return Ok(StepCallOutcome::RunContinued) };
        match run.is_written(call) {
            Some(true) => {}
            None if cancel.is_cancelled() => return Ok(StepCallOutcome::CancelledBeforeStart),
            // The call was refused, or its result could not be written to its row.
            None | Some(false) => TurnResults::save(store, run.id(), &result).await?,
        }
        Ok(StepCallOutcome::Stored)
    }

    /// Answers a request of a run.
    ///
    /// # Errors
    /// [`RunError::Store`]: the run has no such request, it was answered before, or it is bound to another hash.
    pub async fn answer(
        &self,
        id: &RunId,
        request: &str,
        hash: Option<&str>,
        answer: StoredAnswer,
    ) -> Result<(), RunError> {
        let store = self.runs.store();
        let stored = store.approval(request).await?;
        // A signal to one workflow must not answer another run's request.
        if stored.run != id.as_str() {
            return Err(StoreError::NotFound { entity: Entity::Approval, id: request.to_owned() }.into());
        }
        store.answer_approval(request, hash.unwrap_or(&stored.request.hash), answer).await?;
        Ok(())
    }

    /// Takes the lease of a run. Returns `None` if the run has advanced from this version.
    async fn drive(&self, id: &RunId, version: i64) -> Result<Option<Arc<DrivenRun>>, RunError> {
        let (summary, state) = self.runs.find(id, &self.parts.workspace).await?;
        if summary.version != version || summary.status.has_ended() {
            return Ok(None);
        }
        let caller = self.run_caller(id);
        // Add the labels before taking the lease: a bad label must not lock other processes out of the run.
        let labels: Vec<_> = state.labels(id)?.into_iter().chain(self.parts.labels.iter().cloned()).collect();
        self.parts.registry.add_run_labels(&caller, labels);
        let lease = match self.runs.acquire(id).await {
            Err(StoreError::Ended { .. }) => return Ok(None),
            acquired => acquired?,
        };
        let (store, process) = (Arc::clone(self.runs.store()), Arc::clone(self.runs.process()));
        if lease.version != version {
            store.release_lease(id.as_str(), process.name()).await?;
            return Ok(None);
        }
        let registry = (Arc::clone(&self.parts.registry), caller);
        let run = (id.clone(), lease, state, None);
        match DrivenRun::new((Arc::clone(&store), Arc::clone(&process)), run, registry).await {
            Ok(run) => Ok(Some(Arc::new(run))),
            Err(error) => {
                store.release_lease(id.as_str(), process.name()).await?;
                Err(error)
            }
        }
    }

    /// Releases the lease, so that any process can take the next step.
    async fn release(&self, run: &DrivenRun, has_ended: bool) {
        if has_ended {
            // The lease ended with the run.
            self.parts.registry.end_run(&self.run_caller(run.id()));
            return;
        }
        if let Err(error) = run.release().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot release the lease of a run");
        }
    }

    fn agent(&self, run: &Arc<DrivenRun>, executor: Arc<dyn ToolExecutor>) -> AgentLoop {
        let mut config = self.parts.config.clone();
        config.run_id = Some(run.id().to_string());
        config.strategy = ExecutionStrategy::Sequential;
        let parts = &self.parts;
        let (registry, caller) = (Arc::clone(&parts.registry), self.run_caller(run.id()));
        let provider = RecordedModel::new(Arc::clone(&parts.provider), registry, caller, parts.model.clone());
        AgentLoop::new(config, (), Arc::clone(run), provider, executor)
    }

    fn executor(&self, run: &Arc<DrivenRun>) -> Arc<dyn ToolExecutor> {
        self.asking_executor(run, None)
    }

    fn asking_executor(
        &self,
        run: &Arc<DrivenRun>,
        on_approval_request: Option<ApprovalRequestFn>,
    ) -> Arc<dyn ToolExecutor> {
        let mut caller = self.parts.caller.clone();
        caller.start_listener = Some(Arc::clone(run) as Arc<dyn CallStartListener>);
        caller.external_calls = Some(Arc::new(StoredExternalCalls::new(Arc::clone(run))));
        if caller.approver.is_none() {
            let approver = StoredApprover::in_store(Arc::clone(run));
            let (id, for_all) = (run.id().clone(), self.parts.on_approval_request.clone());
            let tell = move |request: &NewApprovalRequest| {
                for_all.iter().for_each(|tell| tell(&id, request));
                on_approval_request.iter().for_each(|tell| tell(request));
            };
            caller.approver = Some(Arc::new(approver.on_approval_request(Arc::new(tell))));
        }
        let executor = RegistryExecutor::new(Arc::clone(&self.parts.registry), caller).with_continued_run();
        let executor = match self.parts.hint {
            Some(hint) => executor.with_hint(hint),
            None => executor,
        };
        Arc::new(StoredExecutor::new(executor, Arc::clone(run)))
    }

    fn position_of(&self, version: i64, state: &RunState) -> RunPosition {
        let offers = if state.next_step() == "run_tools" { self.parts.registry.offers() } else { Vec::new() };
        let call = |call: &portcullis_types::ToolCall| NextCall {
            id: call.id.clone(),
            tool: call.tool.clone(),
            is_offered: offers.iter().any(|offer| offer.decl.name == call.tool),
        };
        let calls = state.runnable_calls().map(call).collect();
        RunPosition { version, next: state.next_step(), calls, status: status(state) }
    }

    fn subject(&self, id: &RunId) -> RunSubject {
        let agent = self.parts.config.agent_id.clone();
        RunSubject { id: id.clone(), agent, workspace: self.parts.workspace.clone() }
    }

    fn run_caller(&self, id: &RunId) -> Caller {
        Caller::new(self.parts.config.agent_id.clone(), id.as_str())
    }

    fn lock(&self, id: &RunId) -> Arc<AsyncMutex<()>> {
        let mut step_locks = self.step_locks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(lock) = step_locks.get(id).and_then(Weak::upgrade) {
            return lock;
        }
        // Drop locks without a step, so that the map does not grow.
        step_locks.retain(|_, lock| lock.strong_count() > 0);
        let lock = Arc::default();
        step_locks.insert(id.clone(), Arc::downgrade(&lock));
        lock
    }
}

/// Returns the state from which a run resumes. It does not include a person's messages, which arrive with the
/// step.
fn resume_state(run: &DrivenRun) -> RunState {
    run.take_resume_point(&AgentHandle::default()).expect("a run that was just driven has not begun")
}

/// Waits for the work. `cancel` cancels the loop that does the work, which then ends gracefully.
async fn cancelled_by<T>(
    work: impl Future<Output = T>,
    cancel: &CancellationToken,
    handle: &AgentHandle,
) -> T {
    let mut work = pin!(work);
    tokio::select! {
        biased;
        // `biased`: a result counts, even if the cancellation is ready at the same moment.
        ended = &mut work => return ended,
        () = cancel.cancelled() => handle.cancel(),
    }
    work.await
}

impl fmt::Debug for Stepper {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Stepper").field("workspace", &self.parts.workspace).finish_non_exhaustive()
    }
}

impl fmt::Debug for StepParts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StepParts").field("workspace", &self.workspace).finish_non_exhaustive()
    }
}
