//! The tools of specification 003: configurations that a file or another program gives.
//!
//! | file | what it is |
//! |---|---|
//! | `configuration.rs` | one configuration, and the reader of a text of them |
//! | `execution.rs` | how a tool runs: `executionType` and `execution` |
//! | `faults.rs` | the mistakes of a text, each with its place |

mod configuration;
mod execution;
mod faults;

pub use configuration::{MAX_CONFIGURATION_BYTES, MAX_TIMEOUT, ToolConfiguration, read_configurations};
pub use execution::{Execution, ExecutionType};
pub use faults::{ConfigurationFault, InvalidConfigurations};
