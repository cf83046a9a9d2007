//! One process's part of a run: works on the prompts, shows the answers, and stores both.

use std::{
    path::PathBuf,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use portcullis_adapters::event_formats::EventFormatKind;
use portcullis_agent::{AgentConfig, AgentRunResult, Provider};
use portcullis_runs::{
    Continuation, DrivenRun, RunSubject, RunTotals, Runs, StoredApprover, StoredExecutor, StoredExternalCalls,
};
use portcullis_tools::{CallStartListener, Caller, PolicyFiles, ToolRegistry};
use portcullis_types::CancellationToken;

use super::{
    prompt::{PromptRunner, executor},
    summary,
};
use crate::{
    agent_file::Price,
    error::CliError,
    notify::Notifier,
    output::{live_view::LiveView, stream, text},
};

/// How the events of a run are shown.
#[derive(Clone)]
pub(super) enum View {
    /// For a person, on standard error.
    LiveView(Arc<LiveView>),
    /// As JSON on standard output, in this format.
    Json(EventFormatKind),
}

/// The person or option that answers the policy's questions about calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ApprovalSource {
    /// The option `--approve` has answered all questions in advance.
    Option,
    /// A person at this terminal or at `portcullis approvals`. Without a terminal, there is no answer.
    Terminal,
    /// A person at `portcullis approvals`.
    StoreOnly,
}

/// One process's part of a run.
pub(super) struct RunSession {
    pub(super) subject: RunSubject,
    pub(super) runs: Runs,
    /// Whether the run is in the store. A new run is stored with its first prompt.
    pub(super) is_stored: AtomicBool,
    /// Whether the previous process ended before the run did.
    pub(super) was_interrupted: bool,
    /// The model's name, as the provider knows it.
    pub(super) model: String,
    pub(super) config: AgentConfig,
    pub(super) provider: Arc<dyn Provider>,
    /// The caller of the model's calls.
    pub(super) caller: Caller,
    pub(super) approval_source: ApprovalSource,
    /// Notifies the operator of questions.
    pub(super) notifier: Option<Arc<Notifier>>,
    pub(super) registry: Arc<ToolRegistry>,
    /// The caller that holds the labels of the run.
    pub(super) run_caller: Caller,
    pub(super) files: PolicyFiles,
    pub(super) audit_log: PathBuf,
    pub(super) view: View,
    pub(super) price: Option<Price>,
    pub(super) totals: Mutex<RunTotals>,
}

impl RunSession {
    /// Continues the run, and shows its events.
    ///
    /// # Errors
    /// [`CliError`] if the run cannot be driven, or the events cannot be shown.
    ///
    /// # Cancellation
    /// As in [`PromptRunner::continue_run`].
    pub(super) async fn continue_run(
        &self,
        mut next: Continuation,
        cancel: &CancellationToken,
    ) -> Result<AgentRunResult, CliError> {
        if !self.is_stored.load(Ordering::Relaxed)
            && let Continuation::Prompt(prompt) = next
        {
            // Store the prompt before the first step, so that another process can resume from it.
            self.runs.add(self.subject.clone(), prompt).await?;
            self.is_stored.store(true, Ordering::Relaxed);
            next = Continuation::Resume;
        }
        let (registry, caller) = (Arc::clone(&self.registry), self.run_caller.clone());
        let run = self.runs.drive(&self.subject, next, registry, caller).await?;
        let prompt_runner = self.prompt_runner(&run);
        let end = match &self.view {
            View::LiveView(live) => {
                let show = |event: &_| {
                    live.show(event);
                    Ok(())
                };
                prompt_runner.continue_run(&run, cancel, show).await
            }
            View::Json(kind) => {
                let mut format = kind.begin();
                let show = |event: &_| stream::write_output(&format.lines(event));
                prompt_runner.continue_run(&run, cancel, show).await
            }
        };
        *self.totals.lock().unwrap_or_else(PoisonError::into_inner) = run.totals().await;
        if let Err(error) = run.release().await {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot release the lease of the run");
        }
        end
    }

    fn prompt_runner(&self, run: &Arc<DrivenRun>) -> PromptRunner {
        let mut caller = self.caller.clone();
        caller.start_listener = Some(Arc::clone(run) as Arc<dyn CallStartListener>);
        caller.external_calls = Some(Arc::new(StoredExternalCalls::new(Arc::clone(run))));
        let stored = match (self.approval_source, caller.approver.take()) {
            (ApprovalSource::Option, approver) => {
                caller.approver = approver;
                None
            }
            (ApprovalSource::StoreOnly, _) => Some(StoredApprover::in_store(Arc::clone(run))),
            (ApprovalSource::Terminal, Some(here)) => {
                Some(StoredApprover::in_store_and_locally(Arc::clone(run), here))
            }
            (ApprovalSource::Terminal, None) => Some(StoredApprover::past_answers_only(Arc::clone(run))),
        };
        if let Some(stored) = stored {
            let approver = match self.notifier.clone() {
                Some(notifier) => {
                    let id = self.subject.id.clone();
                    stored.on_approval_request(Arc::new(move |asked| notifier.notify_of_approval(&id, asked)))
                }
                None => stored,
            };
            caller.approver = Some(Arc::new(approver));
        }
        let executor = executor(Arc::clone(&self.registry), caller).with_continued_run();
        PromptRunner {
            config: self.config.clone(),
            provider: Arc::clone(&self.provider),
            executor: Arc::new(StoredExecutor::new(executor, Arc::clone(run))),
            store: Arc::<DrivenRun>::clone(run),
        }
    }

    /// Shows the answer, unless this terminal or the events have shown it.
    pub(super) fn show_answer(&self, result: &AgentRunResult) -> Result<(), CliError> {
        let was_shown = matches!(self.view, View::Json(_))
            || (stream::stderr_is_terminal() && stream::stdout_is_terminal());
        let Some(answer) = result.answer().filter(|_| !was_shown) else { return Ok(()) };
        let answer = format!("{answer}\n");
        stream::write_output(&if stream::stdout_is_terminal() { text::for_terminal(&answer) } else { answer })
    }

    /// Shows the tokens and the time of a prompt, and of the whole run.
    pub(super) fn show_costs(&self, result: &AgentRunResult, elapsed: Duration) {
        if matches!(self.view, View::LiveView(_)) {
            let totals = *self.totals.lock().unwrap_or_else(PoisonError::into_inner);
            let totals = (totals.usage, totals.elapsed().max(elapsed));
            let line = summary::line((result.usage, elapsed), totals, self.price.as_ref());
            stream::write_stderr(&line);
        }
    }

    /// Shows how the conversation can be continued later, if it has a prompt.
    pub(super) fn show_how_to_continue(&self) {
        if self.is_stored.load(Ordering::Relaxed) {
            stream::write_stderr(&format!("to continue: portcullis agent --resume {}\n", self.subject.id));
        }
    }
}
