//! Everruns: the items that its programs import, all with `use portcullis_adapters::everruns::*;`.
//!
//! | file | what it is |
//! |---|---|
//! | `tool.rs` | the interface of tools, and a call's result |
//! | `adapt.rs` | adapts a tool of this interface for the registry |
//! | `definition.rs` | definitions of tools as JSON |
//! | `registry.rs` | the registry's builder |
//! | `agent_loop.rs` | the loop that runs a model with the registry |

mod adapt;
mod agent_loop;
mod definition;
mod registry;
mod tool;

pub use adapt::Everruns;
pub use agent_loop::{
    AgentConfig, AgentLoop, AgentLoopError, EventEmitter, EventReceiver, EventSender, InMemoryMessageStore,
    MessageStore, Provider, ToolExecutor, event_channel,
};
pub use definition::{BuiltinTool, BuiltinToolKind, ToolDefinition};
pub use portcullis_tools::native::{EchoTool, FailingTool, GetCurrentTime};
pub use registry::{RegistryBuilder, ToolRegistry};
pub use tool::{Tool, ToolExecutionResult, ToolInternalError, ToolPolicy, Value, async_trait};
