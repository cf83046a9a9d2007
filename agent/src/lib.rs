//! The agent loop: asks a model, runs the calls that the model asks for, and asks again with their results.
//!
//! | file | what it is |
//! |---|---|
//! | `config.rs` | settings of a loop: limits, strategy, instructions |
//! | `agent_loop.rs` | the loop: takes a run's steps in this process, from prompt to end |
//! | `single_steps.rs` | the same steps, one at a time |
//! | `steps.rs`, `state.rs` | the steps of a run, and its state between two of them |
//! | `provider.rs` | the provider trait: request, and the pieces of a response |
//! | `read_response.rs` | reads one response, from the request to its last piece |
//! | `accumulator.rs`, `concatenated.rs`, `call_ids.rs` | a response's calls, rebuilt from their pieces |
//! | `calls.rs`, `batches.rs` | the calls of a turn: which run concurrently, and one result for each |
//! | `repeat_guard.rs` | the guard against repeated calls |
//! | `steering.rs` | the handle: steer, follow up, cancel |
//! | `store.rs`, `transcript.rs` | the conversation: where it is kept, and what providers accept |
//! | `event.rs` | the events of a run |
//! | `emitter.rs`, `channel.rs` | observers: the trait, the event stream |
//! | `embedder.rs` | guard of an embedder's parts: panics, and the grace period of a cancelled run |
//! | `telemetry/` | spans and metrics for OpenTelemetry, with the feature `otel` |
//! | `providers/` | the providers: models behind HTTP, and a script |
#![forbid(unsafe_code)]

mod accumulator;
mod agent_loop;
mod batches;
mod call_ids;
mod calls;
mod channel;
mod concatenated;
mod config;
mod embedder;
mod emitter;
mod event;
mod provider;
mod providers;
mod read_response;
mod repeat_guard;
mod single_steps;
mod state;
mod steering;
mod steps;
mod store;
#[cfg(feature = "otel")]
pub mod telemetry;
#[cfg(test)]
mod testing;
mod transcript;

pub use accumulator::{
    ArgumentsPiece, AssembledCall, MAX_CALL_ARGUMENT_BYTES, MAX_CALLED_NAME_BYTES, MAX_CALLS_PER_TURN,
    MAX_LISTED_CALLS, MAX_TURN_ARGUMENT_BYTES, TooManyCalls, ToolCallAccumulator,
};
pub use agent_loop::{AgentLoop, AgentRunResult};
pub use call_ids::MAX_CALL_ID_BYTES;
pub use calls::SKIPPED;
pub use channel::{
    DEFAULT_EVENT_CAPACITY, EventReceiver, EventSender, MAX_ENDS_BEYOND_CAPACITY, MAX_EVENTS_BEYOND_CAPACITY,
    MAX_JOINED_BYTES, event_channel,
};
pub use config::{
    AgentConfig, DEFAULT_CONCURRENCY, DEFAULT_GRACE, DEFAULT_MAX_ITERATIONS, DEFAULT_MODEL_IDLE_TIMEOUT,
    ExecutionStrategy,
};
pub use emitter::EventEmitter;
pub use event::{AgentEnd, AgentEvent};
/// Re-exported: the executor that runs a loop's calls.
pub use portcullis_types::{CallContext, OfferedTool, ToolExecutor};

pub use provider::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, StopReason, ToolCallDelta,
    Usage,
};
pub use providers::{
    ApiKey, ProviderKind, ProviderLimits, ProviderSettings, RemoteProvider, ScriptError, ScriptedProvider,
    StrictTools,
};
pub use read_response::MAX_RESPONSE_BYTES;
pub use repeat_guard::{REPEATS_UNTIL_END, REPEATS_UNTIL_HINT};
pub use state::RunState;
pub use steering::{AgentHandle, MAX_QUEUED_MESSAGES, QueueFull};
pub use store::{ConversationError, InMemoryMessageStore, MessageStore};
pub use transcript::{MAX_UNREADABLE_BYTES, UNREADABLE_KEY, interrupted_error};
