//! The registry of tools and everything behind it: the seven-step pipeline, the WASM runner, the audit log.
//!
//! A front end makes a registry once, with [`bootstrap_runtime_tools`] or, to add to it, with
//! [`runtime_builder`]. It then calls [`ToolRegistry::execute_with_policy`] for each call; there is no other
//! way to a tool. `portcullis-policy` decides what a call may do, and `portcullis-confine` takes rights away
//! from threads. This crate joins the two and keeps the record.
//!
//! ```no_run
//! # async fn embedding(
//! #     envelope: portcullis_types::RunnerBootstrapEnvelope,
//! #     wasm: Vec<u8>,
//! # ) -> Result<(), portcullis_tools::BootstrapError> {
//! use portcullis_tools::{policy::ToolOrigin, runtime_builder};
//!
//! let registry = runtime_builder(&envelope).await?
//!     .module("words", &wasm, ToolOrigin::ForeignModule).await?
//!     .build()?;
//! # drop(registry);
//! # Ok(())
//! # }
//! ```

pub mod approval;
pub mod arguments;
mod bootstrap;
mod builder;
mod call;
mod digest;
mod embedded;
mod error;
mod executor;
mod hint;
pub mod hook;
pub mod modules;
pub mod native;
pub mod output_store;
mod pipeline;
mod rates;
mod registered;
mod registry;
mod run_labels;
pub mod shell;
mod slots;
mod spawn;
pub mod state;
mod table;
mod vault;
mod web;

pub use bootstrap::{
    OVERLAY_FILE, PolicyFiles, bootstrap_runtime_tools, describing_builder, requirement, runtime_builder,
    runtime_builder_with,
};
pub use builder::RegistryBuilder;
pub use call::{Caller, StderrFn, new_call};
pub use error::BootstrapError;
pub use executor::RegistryExecutor;
pub use hint::hinted;
pub use portcullis_sandbox::{
    HostWasmToolRunner,
    links::{LinkReport, PrivatePaths, examine_links},
};
pub use registered::RegisteredTool;
pub use registry::{NameHolder, RegistryError, ToolChanges, ToolRegistry};
pub use web::{SecretError, TakenVariables};

/// Re-exported for callers.
pub use portcullis_types::{EventFn, ToolCall, ToolResult};
/// Re-exported for front ends, which show decisions, layers and rows but make none.
pub use {
    portcullis_audit as audit, portcullis_confine as confine, portcullis_policy as policy,
    portcullis_sandbox as sandbox,
};
