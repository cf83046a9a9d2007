//! The tool configurations of specification 003, which a file or another program provides.
//!
//! | file | what it is |
//! |---|---|
//! | `configuration.rs` | one configuration, and the reader of a text of them |
//! | `execution.rs` | how a tool runs: `executionType` and `execution` |
//! | `mcp.rs` | MCP servers of an agent |
//! | `faults.rs` | the mistakes of a text, each with its place |

mod configuration;
mod execution;
mod faults;
mod mcp;

pub use configuration::{MAX_CONFIGURATION_BYTES, MAX_TIMEOUT, ToolConfiguration, read_configurations};
pub use execution::{ExecutionType, ToolExecution};
pub use faults::{ConfigurationFault, InvalidConfigurations};
pub use mcp::{MAX_ALLOWED_TOOLS, MAX_MCP_SERVERS, McpServerConfiguration};
