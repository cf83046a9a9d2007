//! [`CycleScheduler`]: wakes the agents whose inboxes have entries, and resumes interrupted runs.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use parking_lot::Mutex;
use portcullis_runs::{RunId, now};
use portcullis_store::{PageRequest, Participant, ParticipantKind, RunFilter, StoreError};
use tokio::{
    sync::{Notify, Semaphore},
    task::JoinSet,
};

use crate::{AGENT_PREFIX, cycle, error::ApiError, state::GatewayState};

/// The maximum number of concurrent cycles: 256. Further agents wait.
const MAX_CYCLES: usize = 256;

/// How often the store is polled for entries that another process has written, and for due plans.
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// How often interrupted runs are looked for, such as those of a process that has died.
const RESUME_INTERVAL: Duration = Duration::from_secs(30);

/// How long an agent pauses after its cycle could not begin or continue, so that a fault is not retried in a
/// busy loop.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The number of rows that are read at a time.
const PAGE_ROWS: u32 = 100;

/// The agents with a running cycle.
#[derive(Debug)]
pub(crate) struct CycleScheduler {
    wake: Notify,
    active: Mutex<HashSet<String>>,
    slots: Arc<Semaphore>,
}

impl Default for CycleScheduler {
    fn default() -> Self {
        Self { wake: Notify::new(), active: Mutex::default(), slots: Arc::new(Semaphore::new(MAX_CYCLES)) }
    }
}

/// Prevents a second cycle of an agent until it is dropped.
struct ActiveAgent {
    state: Arc<GatewayState>,
    id: String,
}

impl Drop for ActiveAgent {
    fn drop(&mut self) {
        self.state.cycles.active.lock().remove(&self.id);
        // Entries may have arrived during the cycle.
        self.state.cycles.wake.notify_one();
    }
}

impl CycleScheduler {
    /// Signals that an inbox may have an entry.
    pub(crate) fn wake(&self) {
        self.wake.notify_one();
    }

    /// Returns whether a cycle of this agent runs in this process.
    pub(crate) fn is_active(&self, agent: &str) -> bool {
        self.active.lock().contains(agent)
    }
}

/// Wakes agents until the gateway stops. Cycles then stop at their current step, and a later process resumes
/// them.
pub(crate) async fn run(state: &Arc<GatewayState>) {
    let mut cycles = JoinSet::new();
    let mut resumed: Option<Instant> = None;
    while !state.stop.is_cancelled() {
        // Resume interrupted runs before new entries, because an agent has one cycle at a time.
        if resumed.is_none_or(|at| at.elapsed() >= RESUME_INTERVAL) {
            report(resume_interrupted(state, &mut cycles).await);
            resumed = Some(Instant::now());
        }
        report(wake_agents(state, &mut cycles).await);
        // Remove ended cycles, so that the set does not grow.
        while cycles.try_join_next().is_some() {}
        tokio::select! {
            () = state.cycles.wake.notified() => {}
            () = tokio::time::sleep(POLL_INTERVAL) => {}
            () = state.stop.cancelled() => {}
        }
    }
    // Each cycle ends by itself when the gateway stops.
    while cycles.join_next().await.is_some() {}
}

fn report(result: Result<(), StoreError>) {
    if let Err(error) = result {
        tracing::warn!(error = &error as &dyn std::error::Error, "cannot read the agents' inboxes");
    }
}

/// Begins a cycle of each agent whose inbox has entries.
async fn wake_agents(state: &Arc<GatewayState>, cycles: &mut JoinSet<()>) -> Result<(), StoreError> {
    // Due plans become inbox entries, so take them before reading the inboxes.
    state.store.take_due_plans(now(), PAGE_ROWS).await?;
    let mut after = None;
    loop {
        let request = match after.take() {
            Some(after) => PageRequest::after(after, PAGE_ROWS),
            None => PageRequest::first(PAGE_ROWS),
        };
        let page = state.store.inboxes_with_entries(AGENT_PREFIX, request).await?;
        for agent in page.items {
            start(state, cycles, agent, None);
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Resumes the runs of agents that no process drives.
async fn resume_interrupted(state: &Arc<GatewayState>, cycles: &mut JoinSet<()>) -> Result<(), StoreError> {
    let filter = RunFilter { is_open: Some(true), ..RunFilter::default() };
    let mut after = None;
    loop {
        let request = match after.take() {
            Some(after) => PageRequest::after(after, PAGE_ROWS),
            None => PageRequest::first(PAGE_ROWS),
        };
        let page = state.store.runs(filter.clone(), request).await?;
        for run in page.items.into_iter().filter(|run| run.agent.starts_with(AGENT_PREFIX)) {
            if let Ok(id) = run.id.parse() {
                start(state, cycles, run.agent, Some(id));
            }
        }
        match page.next {
            Some(next) => after = Some(next),
            None => return Ok(()),
        }
    }
}

/// Starts a cycle of an agent, unless one is running: it drives `run`, or else a run from the agent's inbox.
fn start(state: &Arc<GatewayState>, cycles: &mut JoinSet<()>, agent: String, run: Option<RunId>) {
    // Mark the agent as active before it has a slot, so that it does not queue twice.
    if !state.cycles.active.lock().insert(agent.clone()) {
        return;
    }
    let active = ActiveAgent { state: Arc::clone(state), id: agent };
    cycles.spawn(async move {
        let state = &active.state;
        let slots = Arc::clone(&state.cycles.slots);
        let slot = tokio::select! {
            slot = slots.acquire_owned() => slot,
            () = state.stop.cancelled() => return,
        };
        let worked = work(state, &active.id, run).await;
        // During the pause below, the agent holds no slot but stays active, so that its entries do not wake
        // it earlier.
        drop(slot);
        if let Err(error) = worked {
            tracing::warn!(agent = active.id, error = error.message(), "a cycle has stopped");
            tokio::select! {
                () = tokio::time::sleep(RETRY_PAUSE) => {}
                () = state.stop.cancelled() => {}
            }
        }
    });
}

async fn work(state: &Arc<GatewayState>, agent: &str, run: Option<RunId>) -> Result<(), ApiError> {
    let Some(agent) = agent_of(state, agent).await? else { return Ok(()) };
    let run = match run {
        Some(run) => Some(run),
        None => cycle::begin(state, &agent).await?,
    };
    match run {
        Some(run) => cycle::drive(state, &agent, &run).await,
        None => Ok(()),
    }
}

/// Returns the agent with this id. If the agent was removed, empties its inbox so that it does not wake
/// again, and returns `None`.
async fn agent_of(state: &GatewayState, id: &str) -> Result<Option<Participant>, ApiError> {
    match state.store.participant(id).await {
        Ok(agent) if agent.kind == ParticipantKind::Agent => Ok(Some(agent)),
        Ok(_) | Err(StoreError::NotFound { .. }) => {
            // The largest ordinal covers the whole inbox.
            state.store.consume_inbox(id, i64::MAX, now()).await?;
            Ok(None)
        }
        Err(error) => Err(error.into()),
    }
}
