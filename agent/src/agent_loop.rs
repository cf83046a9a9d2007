//! [`AgentLoop`]: asks a model, runs the calls that it asks for, and asks again with their results: the driver
//! that takes a run's steps in this process.

use std::{fmt, sync::Arc};

use portcullis_types::Message;

use super::{
    AgentConfig, AgentEnd, AgentEvent, AgentHandle, EventEmitter, MessageStore, Provider, ToolExecutor,
    Usage,
    call_ids::random_id,
    embedder::{self, GracePeriod},
    state::{RunState, RunStep},
    steps::Steps,
};

/// An agent: one conversation, a model, and tools (specification 000, "ToolRegistry").
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
pub struct AgentRun {
    /// The run's id.
    pub run_id: String,
    /// How it ended.
    pub end: AgentEnd,
    /// How many times the model was asked.
    pub iterations: u32,
    /// Tokens of all answers together, as far as the provider reports them.
    pub usage: Usage,
}

impl AgentRun {
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
    /// `store`, asks `llm`, and has `registry` run the calls. All of them may be shared by `Arc`.
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

    /// A handle to the loop: steer a run, queue a follow-up question, cancel.
    #[must_use]
    pub fn handle(&self) -> AgentHandle {
        self.handle.clone()
    }

    /// Asks the model a question, runs the calls that it asks for, and asks again with their results, until
    /// it answers without calls or the run ends otherwise. Needs a tokio runtime with a timer.
    ///
    /// However the run ends, the stored conversation stays valid for providers: every call has exactly one
    /// result.
    ///
    /// # Cancellation
    /// [`AgentHandle::cancel`] ends the run in order. Dropping the future drops the running calls, emits no
    /// event, and leaves the answer that asked for them out of the conversation.
    pub async fn run(&mut self, question: impl Into<String>) -> AgentRun {
        let question = Message::user(question);
        // Renews the token when the run ends or its future is dropped, so that a cancellation ends only this
        // run.
        let _renews = TokenRenewal(&self.handle);
        let grace_period = GracePeriod { cancel: self.handle.token(), grace: self.config.grace };
        let run_id = self.config.run_id.clone().unwrap_or_else(|| random_id("run"));
        let _ends = EndsRun { agent: self, run_id: run_id.clone() };
        let mut steps = Steps::new(self, grace_period, run_id.clone());
        let mut state = RunState::new(question);
        steps
            .report(AgentEvent::AgentStart { agent_id: self.config.agent_id.clone(), run_id: run_id.clone() })
            .await;
        let end = loop {
            if let RunStep::Over { end } = state.next {
                break end;
            }
            steps.take_one(&mut state).await;
        };
        steps.report(AgentEvent::AgentEnd { end: end.clone() }).await;
        AgentRun { run_id, end, iterations: state.turns_total, usage: state.usage }
    }
}

/// Renews the handle's cancellation token on drop, for the next run.
struct TokenRenewal<'a>(&'a AgentHandle);

impl Drop for TokenRenewal<'_> {
    fn drop(&mut self) {
        self.0.renew();
    }
}

/// Tells the executor on drop that the run is over.
struct EndsRun<'a> {
    agent: &'a AgentLoop,
    run_id: String,
}

impl Drop for EndsRun<'_> {
    fn drop(&mut self) {
        let AgentLoop { executor, config, .. } = self.agent;
        // The run has ended already; a panic of the executor must not change that.
        let _ = embedder::call("executor", || executor.run_ended(&config.agent_id, &self.run_id));
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
