//! [`AgentLoop`]: the agent loop of Everruns, which takes a registry.
//!
//! The loop accepts the builder's result as it is, so a registry that failed to build becomes an error of the
//! run.

use std::sync::Arc;

use portcullis_agent::{self as agent, AgentEnd};
pub use portcullis_agent::{
    AgentConfig, EventEmitter, EventReceiver, EventSender, InMemoryMessageStore, MessageStore, Provider,
    ToolExecutor, event_channel,
};
use portcullis_tools::{BootstrapError, ToolRegistry};
use thiserror::Error;

/// The loop of Everruns. It asks the model, runs the model's calls through the registry, and asks again, at most
/// [`AgentConfig::max_iterations`] times.
#[derive(Debug)]
pub struct AgentLoop {
    inner: Result<agent::AgentLoop, Arc<BootstrapError>>,
}

impl AgentLoop {
    /// Creates a loop that reports events to `emitter` (`()` drops them), keeps its conversation in `store`,
    /// asks `llm`, and runs calls through `registry`, the builder's result. The loop has no approver.
    #[must_use]
    pub fn new(
        config: AgentConfig,
        emitter: impl EventEmitter + 'static,
        store: impl MessageStore + 'static,
        llm: impl Provider + 'static,
        registry: Result<ToolRegistry, BootstrapError>,
    ) -> Self {
        let inner = registry.map(|registry| agent::AgentLoop::new(config, emitter, store, llm, registry));
        Self { inner: inner.map_err(Arc::new) }
    }

    /// Sends the model a prompt, and returns its final answer.
    ///
    /// # Errors
    /// [`AgentLoopError`] for a run that ends in another way.
    ///
    /// # Cancellation
    /// Like [`agent::AgentLoop::run`].
    pub async fn run(&mut self, prompt: impl Into<String>) -> Result<String, AgentLoopError> {
        let agent = self.inner.as_mut().map_err(|error| AgentLoopError::Registry(Arc::clone(error)))?;
        match agent.run(prompt).await.end {
            AgentEnd::Answer { text } => Ok(text),
            AgentEnd::MaxIterations { limit } => Err(AgentLoopError::MaxIterationsReached(limit)),
            end => Err(AgentLoopError::Ended(end)),
        }
    }
}

/// Why a run gave no final answer, for the operator.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AgentLoopError {
    /// The registry could not be built, and the model was not asked.
    #[error("the registry could not be built")]
    Registry(#[source] Arc<BootstrapError>),
    /// The model still requested calls in its last turn.
    #[error("max iterations reached: {0}")]
    MaxIterationsReached(u32),
    /// The run ended in another way.
    #[error("the run ended without an answer: {0:?}")]
    Ended(AgentEnd),
}
