//! The agent: a model that is asked, the calls that it asks for, and its next turn.
//!
//! | file | what it is |
//! |---|---|
//! | `provider.rs` | who answers: what a model is asked, and the pieces that it answers in |
//! | `executor.rs` | who runs the calls; the registry is one |
//! | `event.rs` | what happens, for whoever watches |
//! | `providers/` | the providers: models behind HTTP, and a script |

mod event;
mod executor;
mod provider;
mod providers;

pub use event::{AgentEnd, AgentEvent};
pub use executor::{CallTerms, OfferedTool, ToolExecutor};
pub use provider::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, StopReason, ToolCallDelta,
    Usage,
};
pub use providers::{
    ApiKey, ProviderKind, ProviderLimits, ProviderSettings, RemoteProvider, ScriptError, ScriptedProvider,
    StrictTools,
};
