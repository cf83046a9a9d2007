//! [`AgentConfig`]: the settings of an agent loop.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

/// Default number of turns that a model gets for one prompt.
pub const DEFAULT_MAX_ITERATIONS: NonZeroU32 = NonZeroU32::new(10).expect("10 is not 0");

/// Default limit of calls that run concurrently. Without a limit, a model could start any number of calls.
pub const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(10).expect("10 is not 0");

/// Default grace period: how long calls may take to end by themselves when a run is cancelled.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// Default timeout for a silent model. Without it, a connection that hangs would hold a run forever.
pub const DEFAULT_MODEL_IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The settings of an agent loop. [`AgentConfig::new`] lists the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// The agent's id; rate limits and stored outputs are separate for each agent.
    pub agent_id: String,
    /// The run's id; stored outputs are separate for each run. `None` means a random id for each run.
    pub run_id: Option<String>,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// The operator's instructions; sent first, never stored.
    pub system: Option<String>,
    /// The model's name, as the provider knows it; empty means the provider's own default.
    pub model: String,
    /// The maximum length of one response, in tokens. `None` means the provider's default.
    pub max_tokens: Option<u32>,
    /// Sampling temperature, 0 to 2. `None` means the provider's default.
    pub temperature: Option<f64>,
    /// The maximum number of a model's turns for one prompt. A message that a person adds after a response is a new
    /// prompt.
    pub max_iterations: NonZeroU32,
    /// The calls of a turn that run concurrently.
    pub strategy: ExecutionStrategy,
    /// The maximum number of calls that run concurrently.
    pub concurrency: NonZeroUsize,
    /// Grace period: how long calls, the store and the emitter may take to end by themselves when the run is
    /// cancelled.
    pub grace: Duration,
    /// Deadline of the calls of one turn together, counted from the end of the model's response. The executor
    /// gets the deadline; calls that outlast it by [`AgentConfig::grace`] are dropped. `None` means that only
    /// each call's own deadline applies.
    pub turn_timeout: Option<Duration>,
    /// How long the model may be silent before its response counts as broken off.
    pub model_idle_timeout: Duration,
}

impl AgentConfig {
    /// Creates settings with the defaults: no instructions, the provider's model; 10 turns,
    /// [`ExecutionStrategy::Parallel`], 10 concurrent calls; 2 s of grace, no deadline for a turn's calls, 10
    /// min of silence.
    #[must_use]
    pub fn new(agent_id: impl Into<String>) -> Self {
        Self {
            agent_id: agent_id.into(),
            run_id: None,
            space_id: None,
            system: None,
            model: String::new(),
            max_tokens: None,
            temperature: None,
            max_iterations: DEFAULT_MAX_ITERATIONS,
            strategy: ExecutionStrategy::default(),
            concurrency: DEFAULT_CONCURRENCY,
            grace: DEFAULT_GRACE,
            turn_timeout: None,
            model_idle_timeout: DEFAULT_MODEL_IDLE_TIMEOUT,
        }
    }
}

/// The calls of a turn that run concurrently. In every strategy, a call of a tool that is not declared read-only
/// runs alone: earlier calls end before it starts, and later calls start after it ends. Between batches the
/// loop checks for steering messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExecutionStrategy {
    /// One call after the other.
    Sequential,
    /// All calls that may run concurrently.
    #[default]
    Parallel,
    /// Batches of limited size.
    Batched {
        /// The maximum number of calls of a batch.
        size: NonZeroUsize,
    },
}
