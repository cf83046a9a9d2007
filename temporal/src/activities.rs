//! The activities. Each takes one step of a run, or runs one of its calls, under the run's lease.
//!
//! Activities are idempotent. Each names the version of the run that it follows, and a run that has advanced
//! stays as it is, so a second delivery has no effect.

use std::{collections::BTreeMap, sync::Arc};

use portcullis_agent::AgentEnd;
use portcullis_runs::{
    ApprovalRequestFn, NextStepInput, RunId, RunPosition, StepCallOutcome, StepOutcome, Stepper, now,
    store::{ApprovalDecision, StoredAnswer},
};
use portcullis_types::{CancellationToken, Message};
use temporalio_client::WorkflowSignalOptions;
use temporalio_common::data_converters::{PayloadConverter, RawValue};
use temporalio_macros::activities;
use temporalio_sdk::{
    activities::{ActivityContext, ActivityError},
    workflows::WorkflowImplementation,
};
use tokio::sync::mpsc;

use crate::{
    AgentRun,
    activity_payloads::{
        AnswerInput, CallCompletion, CallInput, NextCallPlacement, RunPositionPayload, SetupInput, StepInput,
    },
    failures::{self, MAX_MODEL_ATTEMPTS},
    heartbeat::with_heartbeats,
    workflow_payloads::ApprovalSignal,
};

/// The channel of an answer that came by a signal, as the store names it.
const VIA: &str = "temporal";

/// Takes steps for one worker.
pub(crate) struct StepActivities {
    stepper: Arc<Stepper>,
    /// The task queues of the tools that other workers run.
    task_queues: BTreeMap<String, String>,
    /// Whether the namespace has the search attributes.
    has_search_attributes: bool,
}

impl StepActivities {
    pub(crate) fn new(
        stepper: Arc<Stepper>,
        task_queues: BTreeMap<String, String>,
        has_search_attributes: bool,
    ) -> Self {
        Self { stepper, task_queues, has_search_attributes }
    }

    /// Takes the step that follows a version of the run.
    async fn step(
        &self,
        context: &ActivityContext,
        input: StepInput,
    ) -> Result<RunPositionPayload, ActivityError> {
        let id = run_id(&input.run)?;
        let attempt = context.info().attempt;
        // The last attempt keeps the failure, so that the run ends as it would in a single process.
        let keeps = |end: &AgentEnd| attempt >= MAX_MODEL_ATTEMPTS || !failures::may_ask_again(end);
        let steering = input.steering.into_iter().map(Message::user).collect();
        let step_input = NextStepInput { steering, skip_reason: input.skip_reason.map(Into::into) };
        let cancel = CancellationToken::new();
        let step = self.stepper.take_step(&id, input.version, step_input, keeps, &cancel);
        match with_heartbeats(context, &cancel, step).await {
            Ok(StepOutcome::Taken(position)) => Ok(self.position_payload(position)),
            Ok(StepOutcome::NotStored(end)) => Err(failures::retried_step_failure(&end)),
            Err(error) => Err(failures::run_error(&error)),
        }
    }

    fn position_payload(&self, position: RunPosition) -> RunPositionPayload {
        let RunPosition { version, next, calls, status } = position;
        let calls = calls.into_iter().map(|call| NextCallPlacement {
            queue: self.task_queues.get(&call.tool).cloned(),
            id: call.id,
            tool: call.tool,
            offered: call.is_offered,
        });
        RunPositionPayload {
            version,
            next: next.to_owned(),
            calls: calls.collect(),
            status: status.as_str().to_owned(),
            searchable: self.has_search_attributes,
        }
    }
}

#[activities]
impl StepActivities {
    /// Adds a new run, and stores its prompt.
    #[activity(name = "setup")]
    pub(crate) async fn setup(
        self: Arc<Self>,
        context: ActivityContext,
        input: SetupInput,
    ) -> Result<RunPositionPayload, ActivityError> {
        let id = run_id(&input.run)?;
        if let Some(prompt) = input.prompt {
            let begun = self.stepper.begin(&id, Message::user(prompt)).await;
            begun.map_err(|error| failures::run_error(&error))?;
        }
        let position = self.stepper.position(&id).await.map_err(|error| failures::run_error(&error))?;
        // A second delivery finds that the step has been taken.
        if position.next != "setup" {
            return Ok(self.position_payload(position));
        }
        let (run, version) = (input.run, position.version);
        self.step(&context, StepInput { run, version, steering: Vec::new(), skip_reason: None }).await
    }

    /// Asks the model.
    #[activity(name = "call_model")]
    pub(crate) async fn call_model(
        self: Arc<Self>,
        context: ActivityContext,
        input: StepInput,
    ) -> Result<RunPositionPayload, ActivityError> {
        self.step(&context, input).await
    }

    /// Runs one call.
    #[activity(name = "run_tool")]
    pub(crate) async fn run_tool(
        self: Arc<Self>,
        context: ActivityContext,
        input: CallInput,
    ) -> Result<CallCompletion, ActivityError> {
        let id = run_id(&input.run)?;
        // The worker that asked the model offered the tool, so another worker may be able to run the call.
        if input.offered && !self.stepper.offers(&input.tool) {
            let info = context.info();
            return Err(failures::no_tool(&input.tool, &info.task_queue, info.attempt));
        }
        let cancel = CancellationToken::new();
        let (on_approval_request, mut asked) = questions();
        let call = self.stepper.run_call(&id, input.version, &input.call, on_approval_request, &cancel);
        let work = async {
            let mut call = std::pin::pin!(call);
            loop {
                tokio::select! {
                    biased;
                    ended = &mut call => return ended,
                    Some(question) = asked.recv() => notify_of_question(&context, question).await,
                }
            }
        };
        match with_heartbeats(&context, &cancel, work).await {
            Ok(StepCallOutcome::Stored) => Ok(CallCompletion::Stored),
            Ok(StepCallOutcome::RunContinued) => Ok(CallCompletion::RunContinued),
            Ok(StepCallOutcome::CancelledBeforeStart) => Err(failures::interrupted()),
            Err(error) => Err(failures::run_error(&error)),
        }
    }

    /// Stores the model's answer with the results of its calls.
    #[activity(name = "finish_turn")]
    pub(crate) async fn finish_turn(
        self: Arc<Self>,
        context: ActivityContext,
        input: StepInput,
    ) -> Result<RunPositionPayload, ActivityError> {
        self.step(&context, input).await
    }

    /// Stores the model's final answer.
    #[activity(name = "finalize")]
    pub(crate) async fn finalize(
        self: Arc<Self>,
        context: ActivityContext,
        input: StepInput,
    ) -> Result<RunPositionPayload, ActivityError> {
        self.step(&context, input).await
    }

    /// Answers a question of the run.
    #[activity(name = "answer")]
    pub(crate) async fn answer(
        self: Arc<Self>,
        _context: ActivityContext,
        input: AnswerInput,
    ) -> Result<(), ActivityError> {
        let id = run_id(&input.run)?;
        let ApprovalSignal { question, approve, hash, reason, by } = input.answer;
        let answer = StoredAnswer {
            decision: if approve { ApprovalDecision::Approve } else { ApprovalDecision::Deny },
            by: by.unwrap_or_else(|| VIA.to_owned()),
            via: VIA.to_owned(),
            edited_arguments: None,
            reason,
            decided: now(),
        };
        let answered = self.stepper.answer(&id, &question, hash.as_deref(), answer).await;
        answered.map_err(|error| failures::run_error(&error))
    }
}

fn run_id(text: &str) -> Result<RunId, ActivityError> {
    text.parse().map_err(|error: portcullis_runs::RunError| failures::bad_input(error.to_string()))
}

/// The maximum number of questions of one call that wait to be reported.
const MAX_QUESTIONS: usize = 16;

/// Creates a callback for the questions of a call, and the receiver of their ids.
fn questions() -> (ApprovalRequestFn, mpsc::Receiver<String>) {
    let (sender, receiver) = mpsc::channel(MAX_QUESTIONS);
    // Ignore the error: the question is stored even if the workflow is not notified.
    (Arc::new(move |asked| drop(sender.try_send(asked.id.clone()))), receiver)
}

/// Notifies the workflow of a question, for its status.
async fn notify_of_question(context: &ActivityContext, question: String) {
    let Some(workflow) = context.workflow_handle::<<AgentRun as WorkflowImplementation>::Run>() else {
        return;
    };
    let input = RawValue::from_value(&question, &PayloadConverter::default());
    if let Err(error) = workflow.signal(AgentRun::asked, input, WorkflowSignalOptions::default()).await {
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            question,
            "cannot tell the workflow of a question"
        );
    }
}
