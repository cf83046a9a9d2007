//! Answers one prompt: runs the loop and shows its events.

use std::{process::ExitCode, sync::Arc};

use portcullis_agent::{
    AgentConfig, AgentEnd, AgentEvent, AgentLoop, AgentRunResult, DEFAULT_EVENT_CAPACITY, MessageStore,
    Provider, ProviderErrorKind, ToolExecutor, event_channel,
};
use portcullis_runs::DrivenRun;
use portcullis_tools::{Caller, RegistryExecutor, ToolRegistry};
use portcullis_types::{CancellationToken, Message, ToolErrorKind};

use crate::{command::interrupts::INTERRUPTED, error::CliError};

/// The hint on how to approve a call when there is no approver.
const HOW_TO_APPROVE: &str = "no approver is available: start the agent on a terminal, or with --approve";

/// Runs prompts through an agent loop, with a model, tools, and a conversation.
#[derive(Clone)]
pub(in crate::command) struct PromptRunner {
    pub(in crate::command) config: AgentConfig,
    pub(in crate::command) provider: Arc<dyn Provider>,
    pub(in crate::command) executor: Arc<dyn ToolExecutor>,
    pub(in crate::command) store: Arc<dyn MessageStore>,
}

impl PromptRunner {
    /// Works on a prompt and shows its events in order, up to the first that cannot be shown.
    ///
    /// # Errors
    /// The error of `show`. The run has nevertheless ended.
    ///
    /// # Cancellation
    /// `cancel_requested` cancels the run, which then ends gracefully.
    pub(in crate::command) async fn run_prompt(
        self,
        prompt: Message,
        cancel_requested: &CancellationToken,
        show: impl FnMut(&AgentEvent) -> Result<(), CliError>,
    ) -> Result<AgentRunResult, CliError> {
        self.drive(async move |agent| agent.ask(prompt).await, cancel_requested, show).await
    }

    /// Continues a run, as [`PromptRunner::run_prompt`] runs a prompt. Keeps the run's lease while it works.
    ///
    /// # Errors
    /// As in [`PromptRunner::run_prompt`].
    ///
    /// # Cancellation
    /// As in [`PromptRunner::run_prompt`]. A person can also cancel the run from another process.
    pub(in crate::command) async fn continue_run(
        self,
        run: &Arc<DrivenRun>,
        cancel_requested: &CancellationToken,
        show: impl FnMut(&AgentEvent) -> Result<(), CliError>,
    ) -> Result<AgentRunResult, CliError> {
        let work = async |agent: &mut AgentLoop| {
            let handle = agent.handle();
            let state =
                run.take_resume_point(&handle).expect("the resume point of a driven run is taken once");
            let _lease = run.keep_lease(handle);
            agent.resume(state).await
        };
        self.drive(work, cancel_requested, show).await
    }

    async fn drive(
        self,
        work: impl AsyncFnOnce(&mut AgentLoop) -> AgentRunResult,
        cancel_requested: &CancellationToken,
        mut show: impl FnMut(&AgentEvent) -> Result<(), CliError>,
    ) -> Result<AgentRunResult, CliError> {
        let Self { config, provider, executor, store } = self;
        let (events, mut event_receiver) = event_channel(DEFAULT_EVENT_CAPACITY);
        let mut agent = AgentLoop::new(config, events, store, provider, executor);
        let handle = agent.handle();
        let work = async move {
            let result = work(&mut agent).await;
            // Close the event channel, which ends `watch`.
            drop(agent);
            result
        };
        let watch = async {
            let mut show_result = Ok(());
            // Drain the channel even after an error, because the run blocks on a full channel.
            while let Some(event) = event_receiver.recv().await {
                if show_result.is_ok() {
                    show_result = show(&event);
                }
            }
            show_result
        };
        let mut run_and_watch = std::pin::pin!(futures_util::future::join(work, watch));
        let outcome = tokio::select! {
            outcome = &mut run_and_watch => Some(outcome),
            () = cancel_requested.cancelled() => None,
        };
        let (result, show_result) = match outcome {
            Some(outcome) => outcome,
            None => {
                // The run still ends gracefully, and blocks until its events are read.
                handle.cancel();
                run_and_watch.await
            }
        };
        show_result.map(|()| result)
    }
}

/// Returns the executor of a model's calls.
pub(in crate::command) fn executor(registry: Arc<ToolRegistry>, caller: Caller) -> RegistryExecutor {
    RegistryExecutor::new(registry, caller).with_hint(HOW_TO_APPROVE)
}

/// Returns the exit code of a run's end.
pub(in crate::command) fn exit_code(end: &AgentEnd) -> ExitCode {
    match end {
        AgentEnd::Answer { .. } => ExitCode::SUCCESS,
        AgentEnd::Cancelled => ExitCode::from(INTERRUPTED),
        AgentEnd::Provider { kind: ProviderErrorKind::Configuration, .. } => ExitCode::from(2),
        AgentEnd::Provider { .. } => ExitCode::from(ToolErrorKind::Unavailable.exit_code()),
        AgentEnd::MaxIterations { .. }
        | AgentEnd::Length { .. }
        | AgentEnd::Repeated { .. }
        | AgentEnd::Internal { .. } => ExitCode::FAILURE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_exit_code_of_each_end() {
        let manual = include_str!("../../../../docs/agent.md");
        let text = String::new;
        let provider = |kind| AgentEnd::Provider { kind, message: text() };
        for (end, name, expected_code) in [
            (AgentEnd::Answer { text: text() }, "answer", "0"),
            (AgentEnd::MaxIterations { limit: 10 }, "too many turns", "1"),
            (AgentEnd::Repeated { tool: text() }, "the same call over and over", "1"),
            (AgentEnd::Length { text: text() }, "cut off", "1"),
            (provider(ProviderErrorKind::Server), "the provider failed", "5"),
            (
                provider(ProviderErrorKind::Configuration),
                "the provider failed",
                "2 where the settings are wrong",
            ),
            (AgentEnd::Cancelled, "cancelled", "130"),
        ] {
            let number = expected_code
                .split(' ')
                .next()
                .and_then(|number| number.parse::<u8>().ok())
                .expect("a number");
            assert_eq!(exit_code(&end), ExitCode::from(number), "{name}");
            let row = manual.lines().find(|line| line.starts_with(&format!("| {name} |"))).expect("a row");
            let cell = row.trim_end_matches(" |").rsplit_once(" | ").expect("a cell").1;
            assert!(cell.split(", or ").any(|part| part == expected_code), "{row}");
        }
    }
}
