//! The agent: a model that is asked, the calls that it asks for, and its next turn.
//!
//! | file | what it is |
//! |---|---|
//! | `provider.rs` | who answers: what a model is asked, and the pieces that it answers in |
//! | `executor.rs` | who runs the calls; the registry is one |
//! | `event.rs` | what happens, for whoever watches |
//! | `forms/` | the same in other systems' words |

mod event;
mod executor;
pub mod forms;
mod provider;

pub use event::{AgentEnd, AgentEvent};
pub use executor::{CallTerms, OfferedTool, ToolExecutor};
pub use provider::{
    Delta, DeltaStream, ModelRequest, Provider, ProviderError, ProviderErrorKind, StopReason, ToolCallDelta,
    Usage,
};
