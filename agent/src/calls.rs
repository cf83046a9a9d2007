//! Runs the calls of one turn. Every call gets exactly one result, even if it panicked, hung or was skipped.

use std::{
    collections::HashSet, future::Future, panic::AssertUnwindSafe, pin::Pin, sync::Arc, time::Duration,
};

use futures_util::FutureExt;
use parking_lot::{Mutex, MutexGuard};
use portcullis_types::{EventFn, ToolCall, ToolError, ToolErrorCode, ToolEvent, ToolResult};
use tokio::{task::JoinSet, time::Instant};

use super::{
    AgentConfig, AgentEvent, AgentHandle, AssembledCall, CallContext, OfferedTool, ToolExecutor,
    batches::batches,
    embedder::{self, EmbedderGuard, GuardedEmitter, panicked},
};

/// The result of a call that steering skipped, as the model reads it.
pub const SKIPPED: &str = "Skipped due to queued user message.";

/// How long the loop waits for dropped calls to stop. It then abandons a call that still blocks its thread.
const DROP_GRACE: Duration = Duration::from_millis(100);

/// The error of a call whose task ended without a result.
const LOST_TASK: &str = "the call's task ended without a result";

/// How long an executor may take to refuse a call. After a slower refusal the loop makes the turn's other
/// refusals itself. Otherwise a log that hangs would delay the run once for each call.
const REFUSAL_TIMEOUT: Duration = Duration::from_secs(1);

/// Context shared by all calls of a run.
pub(super) struct CallRunner<'a> {
    pub(super) config: &'a AgentConfig,
    pub(super) executor: &'a Arc<dyn ToolExecutor>,
    pub(super) emitter: &'a Arc<GuardedEmitter>,
    pub(super) handle: &'a AgentHandle,
    pub(super) guard: &'a EmbedderGuard,
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
        let live_calls = LiveCalls::default();
        let cancel = self.guard.cancel.child_token();
        let timeout = self.config.turn_timeout;
        let context = CallContext {
            agent_id: self.config.agent_id.clone(),
            run_id: self.run_id.to_owned(),
            space_id: self.config.space_id.clone(),
            cancel: cancel.clone(),
            // Executors expect std's `Instant`. `deadline` below is tokio's, which tests can pause.
            turn_deadline: timeout.and_then(|timeout| std::time::Instant::now().checked_add(timeout)),
            on_event: self.emitter.listens().then(|| listener(Arc::clone(self.emitter), live_calls.clone())),
        };
        let mut turn = TurnCalls {
            runner: self,
            context: Arc::new(context),
            live_calls,
            deadline: timeout
                .and_then(|timeout| Instant::now().checked_add(timeout)?.checked_add(self.config.grace)),
            never_blocks: embedder::catch_panic("executor", || self.executor.never_blocks()).unwrap_or(false),
            refuses_slowly: false,
            announced: vec![false; calls.len()],
            results: vec![None; calls.len()],
            requested: Vec::with_capacity(calls.len()),
        };
        let mut runnable = Vec::new();
        for (index, AssembledCall { call, refused }) in calls.into_iter().enumerate() {
            turn.requested.push(call);
            match refused {
                Some(error) => turn.record_refused(index, &error).await,
                None => runnable.push(index),
            }
        }
        let concurrent: Vec<bool> =
            runnable.iter().map(|&index| may_run_concurrently(&turn.requested[index], offers)).collect();
        let mut skip_error = None;
        for (batch_number, batch) in batches(self.config.strategy, &concurrent).into_iter().enumerate() {
            // The first batch always begins. Steering skips only later batches.
            if skip_error.is_none() && batch_number > 0 && self.handle.wants_to_steer() {
                skip_error = Some(skipped_error());
            }
            if self.guard.cancel.is_cancelled() {
                skip_error = Some(cancelled_before_start());
            }
            let batch = &runnable[batch];
            match &skip_error {
                Some(error) => {
                    for &index in batch {
                        turn.record_refused(index, error).await;
                    }
                }
                None => skip_error = turn.run_batch(batch).await,
            }
        }
        // An abandoned call may still hold the context. Cancelling the context's token tells the call to stop.
        cancel.cancel();
        turn.results.into_iter().flatten().collect()
    }
}

/// Returns whether a call may run concurrently with others. A call of a name that was not offered may not,
/// because the name may be an alias of any tool.
fn may_run_concurrently(call: &ToolCall, offers: &[OfferedTool]) -> bool {
    offers.iter().any(|offer| offer.decl.name == call.tool && offer.may_run_concurrently())
}

struct TurnCalls<'a> {
    runner: &'a CallRunner<'a>,
    context: Arc<CallContext>,
    live_calls: LiveCalls,
    /// When calls that outlast the turn's deadline are dropped: the deadline plus the grace period.
    deadline: Option<Instant>,
    /// Whether the executor promises never to block its thread.
    never_blocks: bool,
    /// Whether the executor took too long to refuse a call.
    refuses_slowly: bool,
    requested: Vec<ToolCall>,
    /// The calls that have been announced with [`ToolEvent::Requested`].
    announced: Vec<bool>,
    results: Vec<Option<Arc<ToolResult>>>,
}

impl TurnCalls<'_> {
    /// Runs a batch concurrently. If later batches must not begin, returns the error for their calls.
    async fn run_batch(&mut self, batch: &[usize]) -> Option<ToolError> {
        let guard = self.runner.guard.clone();
        let deadline = self.deadline;
        let give_up_reason = async move {
            tokio::select! {
                () = guard.wait_until_over() => GiveUpReason::Cancelled,
                () = sleep_until_deadline(deadline) => GiveUpReason::TimedOut,
            }
        };
        tokio::pin!(give_up_reason);
        let reason = match *batch {
            [index] if self.never_blocks => self.run_alone(index, give_up_reason).await,
            _ => self.run_concurrently(batch, give_up_reason).await,
        };
        // Calls that began and have no result get `started_error`. Calls that did not begin, here and in
        // later batches, get `unstarted_error`. No call begins after a cancellation, a timeout or steering.
        let is_cancelled = self.runner.guard.cancel.is_cancelled();
        let (started_error, unstarted_error) =
            match reason.or(is_cancelled.then_some(GiveUpReason::Cancelled)) {
                Some(GiveUpReason::TimedOut) => {
                    let error = ToolError::timeout("the turn timed out");
                    (error.clone(), Some(error))
                }
                Some(GiveUpReason::Cancelled) => {
                    (ToolError::cancelled("the run was cancelled"), Some(cancelled_before_start()))
                }
                Some(GiveUpReason::Steered) => (ToolError::internal(LOST_TASK), Some(skipped_error())),
                None => (ToolError::internal(LOST_TASK), None),
            };
        for &index in batch {
            if self.results[index].is_none() {
                let has_begun = self.live_calls.remove(&self.requested[index].id);
                match (&unstarted_error, has_begun) {
                    (Some(unstarted_error), false) => self.record_refused(index, unstarted_error).await,
                    _ => {
                        let result =
                            ToolResult::without_run(self.requested[index].clone(), started_error.clone());
                        self.record_result(index, result).await;
                    }
                }
            }
        }
        unstarted_error
    }

    /// Runs a single call in this task. Returns the reason if the call was given up.
    async fn run_alone(
        &mut self,
        index: usize,
        give_up_reason: Pin<&mut impl Future<Output = GiveUpReason>>,
    ) -> Option<GiveUpReason> {
        if self.runner.guard.cancel.is_cancelled() {
            return None;
        }
        let mut call = Box::pin(self.begin(index).await);
        if self.context.on_event.is_some() {
            // Yield, so that an observer in this task reads the request before the call runs.
            tokio::task::yield_now().await;
        }
        let end = tokio::select! {
            // `biased`: a result that is ready counts, even if the call is given up at the same moment.
            biased;
            result = &mut call => Ok(result),
            reason = give_up_reason => Err(reason),
        };
        // A panic in the call's destructor is the executor's fault and must not end the run.
        let _ = embedder::catch_panic("executor", || drop(call));
        match end {
            Ok((index, result)) => {
                self.record_result(index, result).await;
                None
            }
            Err(reason) => Some(reason),
        }
    }

    /// Runs calls in separate tasks. Returns the reason if they were given up.
    async fn run_concurrently(
        &mut self,
        batch: &[usize],
        mut give_up_reason: Pin<&mut impl Future<Output = GiveUpReason>>,
    ) -> Option<GiveUpReason> {
        let mut tasks = JoinSet::new();
        let mut waiting = batch.iter().copied().peekable();
        let mut reason = None;
        loop {
            while tasks.len() < self.runner.config.concurrency.get()
                && !self.runner.guard.cancel.is_cancelled()
            {
                // Steering skips only calls that have not begun, and the first call of a batch always begins.
                let has_begun = waiting.len() < batch.len();
                if has_begun && waiting.peek().is_some() && self.runner.handle.wants_to_steer() {
                    reason = Some(GiveUpReason::Steered);
                    break;
                }
                let Some(index) = waiting.next() else { break };
                tasks.spawn(self.begin(index).await);
            }
            tokio::select! {
                // `biased`: results that are ready count, even if the calls are given up at the same moment.
                biased;
                joined = tasks.join_next() => match joined {
                    Some(Ok((index, result))) => self.record_result(index, result).await,
                    // Cannot happen here: tasks are aborted only below, and panics inside them are caught.
                    Some(Err(_)) => {}
                    None => break,
                },
                end = &mut give_up_reason => {
                    reason = Some(end);
                    break;
                }
            }
        }
        // A task that finished just before its abort still has a result, and the result counts.
        tasks.abort_all();
        let drop_by = Instant::now() + DROP_GRACE;
        while let Ok(Some(joined)) = tokio::time::timeout_at(drop_by, tasks.join_next()).await {
            if let Ok((index, result)) = joined {
                self.record_result(index, result).await;
            }
        }
        reason
    }

    /// Announces a call, and returns the future that runs it.
    async fn begin(&mut self, index: usize) -> impl Future<Output = (usize, ToolResult)> + Send + use<> {
        self.announce(index).await;
        let call = self.requested[index].clone();
        let (executor, context) = (Arc::clone(self.runner.executor), Arc::clone(&self.context));
        let live_calls = self.live_calls.clone();
        async move {
            // A call begins when its future is first polled. A task may be aborted before that.
            live_calls.insert(call.id.clone());
            (index, run_tool(&*executor, call, &context).await)
        }
    }

    /// Records a refusal as the result of a call that never ran.
    async fn record_refused(&mut self, index: usize, error: &ToolError) {
        self.announce(index).await;
        let (call, started_at) = (self.requested[index].clone(), Instant::now());
        let refused = if self.refuses_slowly {
            None
        } else {
            let refuse = || self.runner.executor.refuse(call.clone(), error.clone(), &self.context);
            embedder::catch_panic("executor", refuse).ok()
        };
        self.refuses_slowly |= started_at.elapsed() > REFUSAL_TIMEOUT;
        let result = refused.unwrap_or_else(|| ToolResult::without_run(call, error.clone()));
        self.record_result(index, result).await;
        // Yield: a turn may have many refusals, and each may write to a log.
        tokio::task::yield_now().await;
    }

    /// Records a call's result under the call's id, regardless of the id that the executor put into it.
    async fn record_result(&mut self, index: usize, mut result: ToolResult) {
        self.live_calls.remove(&self.requested[index].id);
        result.call_id.clone_from(&self.requested[index].id);
        let result = Arc::new(result);
        self.results[index] = Some(Arc::clone(&result));
        self.runner.emitter.report(AgentEvent::ToolEnd { result }).await;
    }

    /// Reports, once for each call, that the model asked for it.
    async fn announce(&mut self, index: usize) {
        // Skip the copy when the emitter does not listen: arguments can be long.
        if self.context.on_event.is_none() || std::mem::replace(&mut self.announced[index], true) {
            return;
        }
        let ToolCall { id, tool, arguments } = self.requested[index].clone();
        let requested = ToolEvent::Requested { call_id: id, tool, arguments };
        self.runner.emitter.report(AgentEvent::Tool(requested)).await;
    }
}

/// Runs one call. This is the only step of a run with an effect. A panic of the executor becomes the call's
/// error.
async fn run_tool(executor: &dyn ToolExecutor, call: ToolCall, context: &CallContext) -> ToolResult {
    let (id, tool) = (call.id.clone(), call.tool.clone());
    let caught = AssertUnwindSafe(async { executor.execute(call, context).await }).catch_unwind().await;
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
    /// A person steered: calls that had begun have ended, and the others do not begin.
    Steered,
}

async fn sleep_until_deadline(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

fn skipped_error() -> ToolError {
    ToolError::cancelled(SKIPPED).with_code(ToolErrorCode::Skipped)
}

fn cancelled_before_start() -> ToolError {
    ToolError::cancelled("the run was cancelled before the call began")
}

/// The ids of the running calls. Events with other ids are dropped: they are late, or belong to no call of
/// the turn.
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
        self.0.lock()
    }
}

/// Returns the callback for an executor's events. The loop itself reports that a call was requested and that
/// it ended, so those events are ignored here.
fn listener(emitter: Arc<GuardedEmitter>, live_calls: LiveCalls) -> EventFn {
    Arc::new(move |event| {
        let (ToolEvent::ApprovalRequested { call_id }
        | ToolEvent::ApprovalResolved { call_id, .. }
        | ToolEvent::Started { call_id, .. }
        | ToolEvent::Heartbeat { call_id, .. }
        | ToolEvent::Progress { call_id, .. }
        | ToolEvent::Update { call_id, .. }
        | ToolEvent::Pending { call_id, .. }) = event
        else {
            return;
        };
        // Hold the lock during the report. The end of a call removes its id under the same lock, so no event
        // follows the end.
        let live_calls = live_calls.lock();
        if live_calls.contains(call_id) {
            emitter.report_now(AgentEvent::Tool(event.clone()));
        }
    })
}

#[cfg(test)]
mod tests;
