//! [`AgentConfig`]: how an agent's loop works.

use std::{
    num::{NonZeroU32, NonZeroUsize},
    time::Duration,
};

/// How many turns a model gets for one question (specification 000, "Execution Flow").
pub const DEFAULT_MAX_ITERATIONS: NonZeroU32 = NonZeroU32::new(10).expect("10 is not 0");

/// How many calls run at once. Without it a model could start as many as it can name.
pub const DEFAULT_CONCURRENCY: NonZeroUsize = NonZeroUsize::new(10).expect("10 is not 0");

/// How long calls have to end by themselves when a run is cancelled.
pub const DEFAULT_GRACE: Duration = Duration::from_secs(2);

/// How long a model may say nothing. Without it a connection that hangs would hold a run for ever.
pub const DEFAULT_MODEL_SILENCE: Duration = Duration::from_secs(600);

/// How an agent's loop works. [`AgentConfig::new`] lists the defaults.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentConfig {
    /// The agent; rate limits and stored outputs are kept apart by it.
    pub agent_id: String,
    /// The run; stored outputs are kept apart by it. None means a fresh random one for each run.
    pub run_id: Option<String>,
    /// The agent's space, if it has one.
    pub space_id: Option<String>,
    /// The operator's instructions; sent first, never stored.
    pub system: Option<String>,
    /// The model's name, as the provider knows it; empty means the provider's own default.
    pub model: String,
    /// How many tokens one answer may have. None means the provider's default.
    pub max_tokens: Option<u32>,
    /// How freely the model chooses its words, 0 to 2. None means the provider's default.
    pub temperature: Option<f64>,
    /// How many turns a model gets for one question. What a person adds after an answer is a new question.
    pub max_iterations: NonZeroU32,
    /// Which calls of a turn run at once.
    pub strategy: ExecutionStrategy,
    /// How many calls run at once at most.
    pub concurrency: NonZeroUsize,
    /// How long calls, the store and the emitter have to end by themselves when the run is cancelled.
    pub grace: Duration,
    /// How long the calls of one turn may take together, counted from the end of the model's answer. An
    /// executor is told; calls that go on for [`AgentConfig::grace`] after it are dropped. None means that each
    /// call has its own deadline only.
    pub turn_timeout: Option<Duration>,
    /// How long the model may say nothing before its answer counts as broken off.
    pub model_silence: Duration,
}

impl AgentConfig {
    /// The defaults: no instructions, the provider's model; 10 turns, [`ExecutionStrategy::Parallel`], 10 calls
    /// at once; 2 s of grace, no deadline for a turn's calls, 10 min of silence.
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
            model_silence: DEFAULT_MODEL_SILENCE,
        }
    }
}

/// Which calls of a turn run at once (specification 002, "Tool Execution"). Whatever it is, a call of a tool
/// that declares a tier other than read-only runs alone, after all before it and before all after it.
/// Between units of calls that run at once the loop looks for what a person has said meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum ExecutionStrategy {
    /// One after the other.
    Sequential,
    /// All that may.
    #[default]
    Parallel,
    /// Groups.
    Batched {
        /// How many calls a group has at most.
        size: NonZeroUsize,
    },
}
