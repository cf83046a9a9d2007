//! [`AgentLoop`]: runs the agent loop in this process. It asks a model, runs the calls that the model asks
//! for, and asks again with their results.

use std::{fmt, sync::Arc};

use portcullis_types::Message;

use super::{
    AgentConfig, AgentEnd, AgentEvent, AgentHandle, EventEmitter, MessageStore, Provider, ToolExecutor,
    Usage,
    call_ids::random_id,
    embedder::{self, EmbedderGuard},
    state::{RunState, RunStep},
    steps::Steps,
};

/// The loop of one agent: its conversation, model and tools.
pub struct AgentLoop {
    pub(super) config: AgentConfig,
    pub(super) emitter: Arc<dyn EventEmitter>,
    pub(super) store: Arc<dyn MessageStore>,
    pub(super) provider: Arc<dyn Provider>,
    pub(super) executor: Arc<dyn ToolExecutor>,
    pub(super) handle: AgentHandle,
}

/// The outcome of a run.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentRunResult {
    /// The run's id.
    pub run_id: String,
    /// How the run ended.
    pub end: AgentEnd,
    /// The number of times that the model was asked.
    pub iterations: u32,
    /// Tokens of all answers together, as far as the provider reports them.
    pub usage: Usage,
}

impl AgentRunResult {
    /// The model's final answer, if the run ended with one.
    #[must_use]
    pub fn answer(&self) -> Option<&str> {
        match &self.end {
            AgentEnd::Answer { text } => Some(text),
            _ => None,
        }
    }
}

impl AgentLoop {
    /// Creates an agent that reports events to `emitter` (`()` drops them), keeps its conversation in
    /// `store`, asks `llm`, and has `registry` run the calls. Each of the four may be shared with an `Arc`.
    #[must_use]
    pub fn new(
        config: AgentConfig,
        emitter: impl EventEmitter + 'static,
        store: impl MessageStore + 'static,
        llm: impl Provider + 'static,
        registry: impl ToolExecutor + 'static,
    ) -> Self {
        Self {
            config,
            emitter: Arc::new(emitter),
            store: Arc::new(store),
            provider: Arc::new(llm),
            executor: Arc::new(registry),
            handle: AgentHandle::default(),
        }
    }

    /// Returns a handle that steers a run, queues a follow-up prompt, or cancels.
    #[must_use]
    pub fn handle(&self) -> AgentHandle {
        self.handle.clone()
    }

    /// Sends the model a prompt, runs the calls that the model asks for, and asks again with their results.
    /// This repeats until the model answers without calls or the run ends otherwise. It needs a tokio runtime
    /// with a timer.
    ///
    /// However the run ends, the stored conversation stays valid for providers: every call has exactly one
    /// result.
    ///
    /// # Cancellation
    /// [`AgentHandle::cancel`] ends the run gracefully. Dropping the future drops the running calls and emits no
    /// event. The answer that asked for those calls is then not in the conversation.
    pub async fn run(&mut self, prompt: impl Into<String>) -> AgentRunResult {
        self.ask(Message::user(prompt)).await
    }

    /// Like [`AgentLoop::run`], with a prompt that may have other content than text, such as images.
    ///
    /// # Cancellation
    /// Same as [`AgentLoop::run`].
    pub async fn ask(&mut self, prompt: Message) -> AgentRunResult {
        self.resume(RunState::new(prompt)).await
    }

    /// Resumes a run from a state that a [`MessageStore`] has kept, possibly in another process. The run
    /// continues with the step after that state. The next request includes the messages that [`AgentHandle`]
    /// has queued.
    ///
    /// An interrupted step is repeated. Its calls reach the executor again, so an executor of stored runs
    /// must know which calls have begun.
    ///
    /// # Cancellation
    /// Same as [`AgentLoop::run`].
    pub async fn resume(&mut self, mut state: RunState) -> AgentRunResult {
        // Renew the token when the run ends or its future is dropped, so that a cancellation ends only this run.
        let _token_renewal = TokenRenewalGuard(&self.handle);
        let guard = EmbedderGuard { cancel: self.handle.token(), grace: self.config.grace };
        let run_id = self.config.run_id.clone().unwrap_or_else(|| random_id("run"));
        let _run_end = RunEndGuard { agent: self, run_id: run_id.clone() };
        let mut steps = Steps::new(self, guard, run_id.clone());
        steps
            .report(AgentEvent::AgentStart { agent_id: self.config.agent_id.clone(), run_id: run_id.clone() })
            .await;
        let end = loop {
            if let RunStep::Ended { end } = state.next {
                break end;
            }
            steps.take_step(&mut state).await;
            steps.save_state(&mut state).await;
        };
        steps.report(AgentEvent::AgentEnd { end: end.clone() }).await;
        AgentRunResult { run_id, end, iterations: state.turns_total, usage: state.usage }
    }
}

/// On drop, renews the handle's cancellation token for the next run.
pub(super) struct TokenRenewalGuard<'a>(pub(super) &'a AgentHandle);

impl Drop for TokenRenewalGuard<'_> {
    fn drop(&mut self) {
        self.0.renew();
    }
}

/// On drop, tells the executor that the run has ended.
struct RunEndGuard<'a> {
    agent: &'a AgentLoop,
    run_id: String,
}

impl Drop for RunEndGuard<'_> {
    fn drop(&mut self) {
        let AgentLoop { executor, config, .. } = self.agent;
        // Ignore the error: the run has ended, and a panic of the executor must not change its outcome.
        let _ = embedder::catch_panic("executor", || executor.run_ended(&config.agent_id, &self.run_id));
    }
}

impl fmt::Debug for AgentLoop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AgentLoop").field("config", &self.config).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod faults;
#[cfg(test)]
mod random;
#[cfg(test)]
mod tests;
