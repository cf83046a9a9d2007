//! Specification 000: what its programs import. `use portcullis_adapters::everruns::*;` is all that one needs before
//! its own lines.
//!
//! | file | what it is |
//! |---|---|
//! | `tool.rs` | the interface of tools, and what comes of a call |
//! | `adapt.rs` | such a tool, as the registry takes tools |
//! | `registry.rs` | the registry's lines |
//! | `agent_loop.rs` | the loop that takes the registry |

mod adapt;
mod agent_loop;
mod registry;
mod tool;

pub use adapt::Everruns;
pub use agent_loop::{
    AgentConfig, AgentLoop, AgentLoopError, EventEmitter, EventReceiver, EventSender, InMemoryMessageStore,
    MessageStore, Provider, ToolExecutor, event_channel,
};
pub use portcullis_tools::native::{EchoTool, FailingTool, GetCurrentTime};
pub use registry::{RegistryBuilder, ToolRegistry};
pub use tool::{Tool, ToolExecutionResult, ToolInternalError, ToolPolicy, Value, async_trait};
