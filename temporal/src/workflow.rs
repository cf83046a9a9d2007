//! [`AgentRun`]: the workflow of a run. It decides which step comes next, and when a signal interrupts a
//! step.
//!
//! The code must make the same decisions when a history is replayed. Guard each change of them with
//! `ctx.patched(…)`. `tests/histories/` has histories of each version.

use std::time::Duration;

use portcullis_runs::RunId;
use portcullis_types::error_chain;
use sha2::{Digest as _, Sha256};
use temporalio_common::{RetryPolicy, data_converters::RawValue, error::ApplicationFailure};
use temporalio_macros::{workflow, workflow_methods};
use temporalio_sdk::{
    ActivityCancellationType, ActivityExecutionError, ActivityOptions, ContinueAsNewOptions,
    SyncWorkflowContext, WaitConditionOptions, WorkflowCancellationToken, WorkflowContext,
    WorkflowContextView, WorkflowResult, WorkflowTermination, workflows::select,
};

use crate::{
    activities::StepActivities,
    activity_payloads::{
        AnswerInput, CallInput, NextCallPlacement, RunPositionPayload, SetupInput, StepInput, WireSkipReason,
    },
    heartbeat::HEARTBEAT_TIMEOUT,
    search_attributes,
    workflow_payloads::{ApprovalSignal, MAX_WAITING, RunOutcome, RunRequest, RunStatusReport, read_message},
};

/// The timeout of a step that neither asks the model nor runs a call.
const STEP_TIMEOUT: Duration = Duration::from_secs(120);

/// The timeout of the model's answer. The loop's own limits end it earlier.
const MODEL_TIMEOUT: Duration = Duration::from_secs(2 * 60 * 60);

/// The timeout of a call, including the wait for an answer to its question.
const CALL_TIMEOUT: Duration = Duration::from_secs(26 * 60 * 60);

const _: () = assert!(CALL_TIMEOUT.as_secs() > portcullis_runs::APPROVAL_TTL.as_secs());

/// The minimum and maximum pause between attempts.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// The options of a step that asks a model or runs a call. The workflow waits until a cancelled step has
/// ended in order.
macro_rules! long_options {
    ($time:expr, $token:expr) => {
        ActivityOptions::with_start_to_close_timeout($time)
            .heartbeat_timeout(HEARTBEAT_TIMEOUT)
            .retry_policy(retries())
            .cancellation_type(ActivityCancellationType::WaitCancellationCompleted)
            .cancellation_token($token.clone())
    };
}

/// The workflow of a run.
#[workflow]
#[derive(Debug, Default)]
pub struct AgentRun {
    steering: Vec<String>,
    answers: Vec<ApprovalSignal>,
    cancelled: bool,
    report: RunStatusReport,
}

#[workflow_methods]
impl AgentRun {
    #[run]
    pub async fn run(ctx: &mut WorkflowContext<Self>, input: RawValue) -> WorkflowResult<RunOutcome> {
        let request = RunRequest::read(&input).map_err(|error| bad_input(&error_chain(&error)))?;
        let run = match &request.run {
            Some(run) => run.clone(),
            None => new_run_id(ctx),
        };
        ctx.state_mut(|state| {
            // Signals can arrive before this function begins. Messages from the previous workflow are older,
            // so put them first.
            state.steering.splice(0..0, request.steering.iter().cloned());
            state.cancelled |= request.cancelled;
            state.report.run = Some(run.clone());
        });
        step_begins(ctx, "setup");
        let setup = SetupInput { run: run.clone(), prompt: request.prompt };
        let mut position =
            ctx.execute_activity(StepActivities::setup, setup, short_activity_options()).await?;
        // Keep this for the end of the run, because only `setup` sets it.
        let searchable = position.searchable;
        if searchable {
            ctx.upsert_search_attributes(search_attributes::run_started(&run));
        }
        while position.next != "ended" {
            step_begins(ctx, &position.next.clone());
            position = match &*position.next {
                "run_tools" => turn(ctx, &run, &position).await?,
                "call_model" => ask(ctx, &run, position.version).await?,
                "finalize" => finalize(ctx, &run, position.version).await?,
                other => return Err(bad_input(&format!("the step `{other}` is not known to this worker"))),
            };
            // Temporal limits the size of a history, so continue as a new workflow. The run's state is in the
            // store, so pass on only unread messages.
            if ctx.continue_as_new_suggested() && position.next != "ended" {
                let next = ctx.state(|state| RunRequest {
                    run: Some(run.clone()),
                    prompt: None,
                    steering: state.steering.clone(),
                    cancelled: state.cancelled,
                });
                let next = RawValue::from_value(&next, ctx.payload_converter());
                ctx.continue_as_new(next, ContinueAsNewOptions::default())?;
            }
        }
        step_begins(ctx, "ended");
        let status = position.status;
        ctx.state_mut(|state| state.report.status = Some(status.clone()));
        if searchable {
            ctx.upsert_search_attributes(search_attributes::ended(&status));
        }
        // A run that ended in another way before the cancellation keeps that end.
        if ctx.cancellation_token().is_cancelled() && status == "cancelled" {
            return Err(WorkflowTermination::cancelled());
        }
        let unread = ctx.state(|state| state.steering.clone());
        Ok(RunOutcome { run, status, unread })
    }

    /// Answers a question of the run.
    #[signal]
    pub fn approve(&mut self, _ctx: &mut SyncWorkflowContext<Self>, input: RawValue) {
        match ApprovalSignal::read(&input) {
            // Any client can send signals, so the queues are bounded.
            Ok(_) if self.answers.len() >= MAX_WAITING => self.refuse("too many answers wait"),
            Ok(answer) => self.answers.push(answer),
            Err(error) => self.refuse(&error_chain(&error)),
        }
    }

    /// Sends a message to the model as soon as possible.
    #[signal]
    pub fn steer(&mut self, _ctx: &mut SyncWorkflowContext<Self>, input: RawValue) {
        match read_message(&input) {
            Ok(_) if self.steering.len() >= MAX_WAITING => self.refuse("too many messages wait"),
            Ok(message) => self.steering.push(message),
            Err(error) => self.refuse(&error_chain(&error)),
        }
    }

    /// Cancels the run. A running call gets the time to end.
    #[signal]
    pub fn cancel(&mut self, _ctx: &mut SyncWorkflowContext<Self>, _input: RawValue) {
        self.cancelled = true;
    }

    /// Notes that a worker has stored a question.
    #[signal]
    pub fn asked(&mut self, _ctx: &mut SyncWorkflowContext<Self>, input: RawValue) {
        if let Ok(question) = read_message(&input)
            && self.report.questions.len() < MAX_WAITING
        {
            self.report.questions.push(question);
        }
    }

    /// Returns the status of the run.
    #[query]
    pub fn status(&self, _ctx: &WorkflowContextView) -> RunStatusReport {
        let waiting_messages = self.steering.len();
        RunStatusReport { waiting_messages, cancelled: self.cancelled, ..self.report.clone() }
    }

    fn refuse(&mut self, reason: &str) {
        self.report.refused_signal = Some(reason.to_owned());
    }
}

/// Asks the model, with the messages that a person has written in the meantime.
async fn ask(ctx: &WorkflowContext<AgentRun>, run: &str, version: i64) -> WorkflowResult<RunPositionPayload> {
    let steering = ctx.state_mut(|state| std::mem::take(&mut state.steering));
    let skip_reason = is_cancelled(ctx).then_some(WireSkipReason::Cancelled);
    let input = StepInput { run: run.to_owned(), version, steering, skip_reason };
    let again = StepInput { skip_reason: Some(WireSkipReason::Cancelled), ..input.clone() };
    let token = WorkflowCancellationToken::new();
    let options = long_options!(MODEL_TIMEOUT, token).build();
    let model_call = ctx.execute_activity(StepActivities::call_model, input, options);
    match wait_with_signals(ctx, run, model_call, &token).await {
        Ok(position) => Ok(position),
        // The step was abandoned. Take it again, to end the run.
        Err(_) if is_cancelled(ctx) => {
            Ok(ctx.execute_activity(StepActivities::call_model, again, short_activity_options()).await?)
        }
        Err(error) => Err(error.into()),
    }
}

/// Runs the calls of a turn one at a time, and then stores their results.
async fn turn(
    ctx: &WorkflowContext<AgentRun>,
    run: &str,
    position: &RunPositionPayload,
) -> WorkflowResult<RunPositionPayload> {
    for (number, call) in position.calls.iter().enumerate() {
        // The first call of a turn is never skipped because of a message.
        let is_steered = number > 0 && ctx.state(|state| !state.steering.is_empty());
        if is_steered || is_cancelled(ctx) {
            break;
        }
        run_tool(ctx, run, position.version, call).await;
    }
    ctx.state_mut(|state| {
        (state.report.call, state.report.tool) = (None, None);
        state.report.questions.clear();
    });
    let input = StepInput {
        run: run.to_owned(),
        version: position.version,
        steering: Vec::new(),
        skip_reason: skip_reason(ctx),
    };
    Ok(ctx.execute_activity(StepActivities::finish_turn, input, short_activity_options()).await?)
}

/// Runs a call. If it has no result, the turn's step tells the model.
async fn run_tool(ctx: &WorkflowContext<AgentRun>, run: &str, version: i64, call: &NextCallPlacement) {
    ctx.state_mut(|state| {
        (state.report.call, state.report.tool) = (Some(call.id.clone()), Some(call.tool.clone()));
        state.report.questions.clear();
    });
    let input = CallInput {
        run: run.to_owned(),
        version,
        call: call.id.clone(),
        tool: call.tool.clone(),
        offered: call.offered,
    };
    let token = WorkflowCancellationToken::new();
    let options = long_options!(CALL_TIMEOUT, token)
        .summary(call.tool.clone())
        .maybe_task_queue(call.queue.clone())
        .build();
    let running = ctx.execute_activity(StepActivities::run_tool, input, options);
    // Ignore the error: the history has it, and the turn's step finds no result.
    let _ = wait_with_signals(ctx, run, running, &token).await;
}

/// Stores the model's answer. If a person has written a message in the meantime, the model is asked again.
async fn finalize(
    ctx: &WorkflowContext<AgentRun>,
    run: &str,
    version: i64,
) -> WorkflowResult<RunPositionPayload> {
    let skip_reason = skip_reason(ctx);
    let input = StepInput { run: run.to_owned(), version, steering: Vec::new(), skip_reason };
    Ok(ctx.execute_activity(StepActivities::finalize, input, short_activity_options()).await?)
}

/// Waits for an activity. In the meantime, passes answers on to the store, and a cancellation to the worker.
async fn wait_with_signals<T>(
    ctx: &WorkflowContext<AgentRun>,
    run: &str,
    activity: impl futures::future::FusedFuture<Output = Result<T, ActivityExecutionError>>,
    token: &WorkflowCancellationToken,
) -> Result<T, ActivityExecutionError> {
    let mut activity = std::pin::pin!(activity);
    loop {
        // Cancel the activity only once. After that, wait only for answers and for its end.
        let is_told = token.is_cancelled();
        // Give the wait its own token, so that a cancellation of the workflow does not fail it.
        let never =
            || WaitConditionOptions::builder().cancellation_token(WorkflowCancellationToken::new()).build();
        let mut spoken = std::pin::pin!(ctx.wait_condition_with_options(
            move |state| !state.answers.is_empty() || (state.cancelled && !is_told),
            never(),
        ));
        let mut cancelled = std::pin::pin!(ctx.cancelled());
        // Do not wait if there is a cancellation that the activity does not know yet.
        if is_told || !is_cancelled(ctx) {
            select! {
                ended = activity => return ended,
                _ = spoken => {}
                _ = cancelled => {
                    if is_told {
                        return activity.await;
                    }
                }
            }
        }
        if is_cancelled(ctx) {
            token.cancel();
        }
        // Take one answer at a time: another can arrive while this one is being stored.
        while let Some(answer) =
            ctx.state_mut(|state| (!state.answers.is_empty()).then(|| state.answers.remove(0)))
        {
            let question = answer.question.clone();
            let input = AnswerInput { run: run.to_owned(), answer };
            let answered =
                ctx.execute_activity(StepActivities::answer, input, short_activity_options()).await;
            ctx.state_mut(|state| match answered {
                Ok(()) => state.report.questions.retain(|asked| *asked != question),
                Err(error) => state.refuse(&reason(&error)),
            });
        }
    }
}

/// Returns why an activity has failed, in the words of the worker.
fn reason(error: &ActivityExecutionError) -> String {
    error.reason().map_or_else(|| error.to_string(), ToString::to_string)
}

fn is_cancelled(ctx: &WorkflowContext<AgentRun>) -> bool {
    ctx.state(|state| state.cancelled) || ctx.cancellation_token().is_cancelled()
}

fn skip_reason(ctx: &WorkflowContext<AgentRun>) -> Option<WireSkipReason> {
    if is_cancelled(ctx) {
        return Some(WireSkipReason::Cancelled);
    }
    ctx.state(|state| !state.steering.is_empty()).then_some(WireSkipReason::Steered)
}

fn step_begins(ctx: &WorkflowContext<AgentRun>, step: &str) {
    ctx.state_mut(|state| step.clone_into(&mut state.report.step));
}

/// Returns the options of a short step. A cancellation does not stop it, because the run must be stored.
fn short_activity_options() -> ActivityOptions {
    ActivityOptions::with_start_to_close_timeout(STEP_TIMEOUT)
        .heartbeat_timeout(HEARTBEAT_TIMEOUT)
        .retry_policy(retries())
        .cancellation_token(WorkflowCancellationToken::new())
        .build()
}

/// Failures are retried forever. A permanent failure is marked as non-retryable.
fn retries() -> RetryPolicy {
    RetryPolicy::builder().initial_interval(FIRST_PAUSE).maximum_interval(MAX_PAUSE).build()
}

fn bad_input(reason: &str) -> WorkflowTermination {
    let failure = ApplicationFailure::builder(reason.to_owned()).type_name("bad_input".to_owned());
    failure.non_retryable(true).build().into()
}

/// Derives the id of a new run from the workflow, so that a repeated step adds no second run.
fn new_run_id(ctx: &WorkflowContext<AgentRun>) -> String {
    let parts = format!("{}\0{}\0{}", ctx.namespace(), ctx.workflow_id(), ctx.run_id());
    RunId::from_hash(&Sha256::digest(parts).into()).to_string()
}
