//! Runs the calls of one turn. Each call has exactly one result at the end, also if it panics, hangs or is
//! skipped.

use std::{
    collections::HashSet,
    future::Future,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt;
use portcullis_types::{EventFn, ToolCall, ToolError, ToolEvent, ToolResult};
use tokio::{task::JoinSet, time::Instant};

use super::{
    AgentConfig, AgentEvent, AgentHandle, AssembledCall, CallTerms, OfferedTool, ToolExecutor,
    batches::batches,
    embedder::{self, GracePeriod, GuardedEmitter, panicked},
};

/// The result that a model reads for a call skipped by steering (specification 002, "Steering").
pub const SKIPPED: &str = "Skipped due to queued user message.";

/// How long dropped calls are awaited. A call that blocks its thread is left behind after that.
const DROP_TIME: Duration = Duration::from_millis(100);

/// The error of a call whose task ended without a result.
const LOST: &str = "the call's task ended without a result";

/// How long an executor may take to refuse a call. After a slower refusal the rest of the turn's refusals
/// skip the executor: a log that cannot be written must not delay a run once for each of a hundred calls.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// Context shared by all calls of a run.
pub(super) struct CallRunner<'a> {
    pub(super) config: &'a AgentConfig,
    pub(super) executor: &'a Arc<dyn ToolExecutor>,
    pub(super) emitter: &'a Arc<GuardedEmitter>,
    pub(super) handle: &'a AgentHandle,
    pub(super) grace_period: &'a GracePeriod,
    pub(super) run_id: &'a str,
}

impl CallRunner<'_> {
    /// Runs the calls of a turn, and returns their results in the same order.
    ///
    /// # Cancellation
    /// Dropping the future drops the calls. Cancelling the run's token gives them the grace period to end.
    pub(super) async fn run(
        &self,
        calls: Vec<AssembledCall>,
        offers: &[OfferedTool],
    ) -> Vec<Arc<ToolResult>> {
        let live = LiveCalls::default();
        let cancel = self.grace_period.cancel.child_token();
        let timeout = self.config.turn_timeout;
        let terms = CallTerms {
            agent_id: self.config.agent_id.clone(),
            run_id: self.run_id.to_owned(),
            space_id: self.config.space_id.clone(),
            cancel: cancel.clone(),
            // `std`'s `Instant`, as executors expect. `deadline` below is tokio's, which tests can pause.
            turn_deadline: timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout)),
            on_event: self.emitter.listens().then(|| listener(Arc::clone(self.emitter), live.clone())),
        };
        let mut turn = TurnCalls {
            calls: self,
            terms: Arc::new(terms),
            live,
            deadline: timeout
                .and_then(|timeout| Instant::now().checked_add(timeout)?.checked_add(self.config.grace)),
            never_blocks: embedder::call("executor", || self.executor.never_blocks()).unwrap_or(false),
            refuses_slowly: false,
            announced: vec![false; calls.len()],
            results: vec![None; calls.len()],
            requested: Vec::with_capacity(calls.len()),
        };
        let mut runnable = Vec::new();
        for (at, AssembledCall { call, refused }) in calls.into_iter().enumerate() {
            turn.requested.push(call);
            match refused {
                Some(error) => turn.record_refused(at, &error).await,
                None => runnable.push(at),
            }
        }
        let beside: Vec<bool> =
            runnable.iter().map(|&at| may_run_concurrently(&turn.requested[at], offers)).collect();
        let mut over = None;
        for (nth, batch) in batches(self.config.strategy, &beside).into_iter().enumerate() {
            if over.is_none() && nth > 0 && self.handle.wants_to_steer() {
                over = Some(skipped());
            }
            if self.grace_period.cancel.is_cancelled() {
                over = Some(cancelled_before());
            }
            let batch = &runnable[batch];
            match &over {
                Some(error) => {
                    for &at in batch {
                        turn.record_refused(at, error).await;
                    }
                }
                None => over = turn.run_batch(batch).await,
            }
        }
        // A call that was left behind may still hold the terms: its token tells it to stop.
        cancel.cancel();
        turn.results.into_iter().flatten().collect()
    }
}

/// Whether a call may run concurrently with others. A name that is not among the offers may be an alias of
/// any tool, so it may not.
fn may_run_concurrently(call: &ToolCall, offers: &[OfferedTool]) -> bool {
    offers.iter().any(|offer| offer.decl.name == call.tool && offer.runs_beside_others())
}

struct TurnCalls<'a> {
    calls: &'a CallRunner<'a>,
    terms: Arc<CallTerms>,
    live: LiveCalls,
    /// When calls that outlast the turn's deadline are dropped.
    deadline: Option<Instant>,
    /// Whether the executor promises never to block its thread.
    never_blocks: bool,
    /// Whether the executor took too long to refuse a call.
    refuses_slowly: bool,
    requested: Vec<ToolCall>,
    /// Which calls have been announced with [`ToolEvent::Requested`].
    announced: Vec<bool>,
    results: Vec<Option<Arc<ToolResult>>>,
}

impl TurnCalls<'_> {
    /// Runs a batch concurrently. Returns the error for the calls of later batches if these must not begin.
    async fn run_batch(&mut self, batch: &[usize]) -> Option<ToolError> {
        let grace_period = self.calls.grace_period.clone();
        let deadline = self.deadline;
        let give_up_reason = async move {
            tokio::select! {
                () = grace_period.over() => GiveUpReason::Cancelled,
                () = until(deadline) => GiveUpReason::TimedOut,
            }
        };
        tokio::pin!(give_up_reason);
        let reason = match *batch {
            [at] if self.never_blocks => self.run_alone(at, give_up_reason).await,
            _ => self.run_concurrently(batch, give_up_reason).await,
        };
        // After a cancellation no further call begins. `running` is the result of calls that had begun, `before` that of
        // calls that had not; after a person's message the latter are left out, and the former are waited for.
        let is_cancelled = self.calls.grace_period.cancel.is_cancelled();
        let (running, before) = match reason.or(is_cancelled.then_some(GiveUpReason::Cancelled)) {
            Some(GiveUpReason::TimedOut) => {
                let error = ToolError::timeout("the turn's time is over");
                (error.clone(), Some(error))
            }
            Some(GiveUpReason::Cancelled) => {
                (ToolError::cancelled("the run was cancelled"), Some(cancelled_before()))
            }
            Some(GiveUpReason::Steered) => (ToolError::internal(LOST), Some(skipped())),
            None => (ToolError::internal(LOST), None),
        };
        for &at in batch {
            if self.results[at].is_none() {
                let begun = self.live.remove(&self.requested[at].id);
                match (&before, begun) {
                    (Some(before), false) => self.record_refused(at, before).await,
                    _ => {
                        let result = ToolResult::without_run(self.requested[at].clone(), running.clone());
                        self.record_result(at, result).await;
                    }
                }
            }
        }
        before
    }

    /// Runs a single call in this task, and returns why it was given up, if it was.
    async fn run_alone(
        &mut self,
        at: usize,
        give_up_reason: Pin<&mut impl Future<Output = GiveUpReason>>,
    ) -> Option<GiveUpReason> {
        if self.calls.grace_period.cancel.is_cancelled() {
            return None;
        }
        let mut call = Box::pin(self.begin(at).await);
        if self.terms.on_event.is_some() {
            // Lets an observer in this same task read the request before the call runs.
            tokio::task::yield_now().await;
        }
        let end = tokio::select! {
            // `biased`: a result that is ready counts, even if the call is given up at the same time.
            biased;
            result = &mut call => Ok(result),
            reason = give_up_reason => Err(reason),
        };
        // A panic in its destructor is the executor's fault and must not end the run.
        let _ = embedder::call("executor", || drop(call));
        match end {
            Ok((at, result)) => {
                self.record_result(at, result).await;
                None
            }
            Err(reason) => Some(reason),
        }
    }

    /// Runs calls in separate tasks, and returns why they were given up, if they were.
    async fn run_concurrently(
        &mut self,
        batch: &[usize],
        mut give_up_reason: Pin<&mut impl Future<Output = GiveUpReason>>,
    ) -> Option<GiveUpReason> {
        let mut tasks = JoinSet::new();
        let mut waiting = batch.iter().copied().peekable();
        let mut reason = None;
        loop {
            while tasks.len() < self.calls.config.concurrency.get()
                && !self.calls.grace_period.cancel.is_cancelled()
            {
                // Steering skips only calls that have not begun, and the first call of a batch always begins.
                let has_begun = waiting.len() < batch.len();
                if has_begun && waiting.peek().is_some() && self.calls.handle.wants_to_steer() {
                    reason = Some(GiveUpReason::Steered);
                    break;
                }
                let Some(at) = waiting.next() else { break };
                tasks.spawn(self.begin(at).await);
            }
            tokio::select! {
                // `biased`: results that are ready count, even if the calls are given up at the same time.
                biased;
                joined = tasks.join_next() => match joined {
                    Some(Ok((at, result))) => self.record_result(at, result).await,
                    // Tasks are aborted only below, and panics inside them are caught.
                    Some(Err(_)) => {}
                    None => break,
                },
                end = &mut give_up_reason => {
                    reason = Some(end);
                    break;
                }
            }
        }
        tasks.abort_all();
        let drop_by = Instant::now() + DROP_TIME;
        while let Ok(Some(joined)) = tokio::time::timeout_at(drop_by, tasks.join_next()).await {
            if let Ok((at, result)) = joined {
                self.record_result(at, result).await;
            }
        }
        reason
    }

    /// Announces a call, and returns the future that runs it.
    async fn begin(&mut self, at: usize) -> impl Future<Output = (usize, ToolResult)> + Send + use<> {
        self.announce(at).await;
        let call = self.requested[at].clone();
        let (executor, terms) = (Arc::clone(self.calls.executor), Arc::clone(&self.terms));
        let live = self.live.clone();
        async move {
            live.insert(call.id.clone());
            (at, run_tool(&*executor, call, &terms).await)
        }
    }

    /// Gives a call that never ran the refusal as its result.
    async fn record_refused(&mut self, at: usize, error: &ToolError) {
        self.announce(at).await;
        let (call, begun) = (self.requested[at].clone(), Instant::now());
        let refused = match self.refuses_slowly {
            true => None,
            false => {
                let refuse = || self.calls.executor.refuse(call.clone(), error.clone(), &self.terms);
                embedder::call("executor", refuse).ok()
            }
        };
        self.refuses_slowly |= begun.elapsed() > REFUSAL_TIME;
        let result = refused.unwrap_or_else(|| ToolResult::without_run(call, error.clone()));
        self.record_result(at, result).await;
        // Yield: a turn may have many refusals, and each may write a log.
        tokio::task::yield_now().await;
    }

    /// Records a call's result under the call's id, whatever id the executor put into it.
    async fn record_result(&mut self, at: usize, mut result: ToolResult) {
        self.live.remove(&self.requested[at].id);
        result.call_id.clone_from(&self.requested[at].id);
        let result = Arc::new(result);
        self.results[at] = Some(Arc::clone(&result));
        self.calls.emitter.report(AgentEvent::ToolEnd { result }).await;
    }

    async fn announce(&mut self, at: usize) {
        // Skip the copy when no emitter listens: arguments can be long.
        if self.terms.on_event.is_none() || std::mem::replace(&mut self.announced[at], true) {
            return;
        }
        let ToolCall { id, tool, arguments } = self.requested[at].clone();
        let requested = ToolEvent::Requested { call_id: id, tool, arguments };
        self.calls.emitter.report(AgentEvent::Tool(requested)).await;
    }
}

/// Runs one call: the step of a run that has an effect. A panic of the executor is the call's error.
async fn run_tool(executor: &dyn ToolExecutor, call: ToolCall, terms: &CallTerms) -> ToolResult {
    let (id, tool) = (call.id.clone(), call.tool.clone());
    let caught = AssertUnwindSafe(async { executor.execute(call, terms).await }).catch_unwind().await;
    caught.unwrap_or_else(|panic| {
        let fault = panicked("executor", &*panic);
        let call = ToolCall { id, tool, arguments: String::new() };
        ToolResult::without_run(call, ToolError::internal(fault.to_string()))
    })
}

/// Why the calls of a batch were given up.
enum GiveUpReason {
    Cancelled,
    TimedOut,
    /// A person steered: calls that had begun have ended, the others do not begin.
    Steered,
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn skipped() -> ToolError {
    ToolError::cancelled(SKIPPED).with_code("skipped")
}

fn cancelled_before() -> ToolError {
    ToolError::cancelled("the run was cancelled before the call began")
}

/// Ids of the running calls. Events of other ids are dropped: they are late, or belong to no call of the
/// turn.
#[derive(Clone, Default)]
struct LiveCalls(Arc<Mutex<HashSet<String>>>);

impl LiveCalls {
    fn insert(&self, id: String) {
        self.lock().insert(id);
    }

    fn remove(&self, id: &str) -> bool {
        self.lock().remove(id)
    }

    fn lock(&self) -> MutexGuard<'_, HashSet<String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the callback for an executor's events. The loop itself reports that a call was requested and that
/// it ended, so those events are ignored here.
fn listener(emitter: Arc<GuardedEmitter>, live: LiveCalls) -> EventFn {
    Arc::new(move |event| {
        let (ToolEvent::ApprovalRequested { call_id }
        | ToolEvent::ApprovalResolved { call_id, .. }
        | ToolEvent::Started { call_id, .. }
        | ToolEvent::Heartbeat { call_id, .. }
        | ToolEvent::Progress { call_id, .. }
        | ToolEvent::Update { call_id, .. }
        | ToolEvent::Pending { call_id }) = event
        else {
            return;
        };
        // The lock is held during the report, so that no event follows the call's end.
        let live = live.lock();
        if live.contains(call_id) {
            emitter.report_now(AgentEvent::Tool(event.clone()));
        }
    })
}

#[cfg(test)]
mod tests;
