//! The registry of tools, and the seven-step pipeline of their calls.
//!
//! A front end makes a registry once, with [`bootstrap_runtime_tools`], or with [`runtime_builder`] to add parts of its
//! own. For each call it then uses [`ToolRegistry::execute_with_policy`], which is the only way to a tool.
//! `portcullis-policy` decides what a call may do, `portcullis-confine` removes rights from threads,
//! `portcullis-sandbox` runs guests, and `portcullis-audit` keeps the record. This crate joins them.
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
//!
//! | file | what it is |
//! |---|---|
//! | `registry.rs`, `registry/` | the tools, and the only way to call them |
//! | `pipeline.rs`, `pipeline/` | the seven steps of a call, the backends, and explanations of calls |
//! | `call.rs` | the caller of a call, and its limits, listeners and approver |
//! | `arguments.rs`, `arguments/` | parse, repair and validate the arguments of a call |
//! | `approval.rs`, `approval/`, `approval_hint.rs` | asks an approver, and adds a hint if there is none |
//! | `hook.rs` | code of the embedding program around each call |
//! | `slots.rs`, `rate_limit.rs` | concurrency limits and rate limits of calls |
//! | `run_labels.rs` | labels of the data that the calls of a run have read |
//! | `output_store.rs`, `stored_grant.rs` | complete outputs, which a model can page through, and their grants |
//! | `bootstrap.rs`, `builder.rs`, `builder/` | assemble a registry |
//! | `registered.rs`, `tool_table.rs`, `shared_state.rs` | a tool, all tools by name, and state that outlives a registry |
//! | `executor.rs` | implements the agent loop's tool executor |
//! | `native.rs`, `native/` | native tools |
//! | `vault.rs`, `vault/` | the operation `vault_copyto` |
//! | `web.rs`, `web/` | the other operations, and requests through the host's HTTP client |
//! | `shell.rs`, `shell/` | commands in the sessions of a sidecar |
//! | `configured_tool.rs` | tools that are a configuration instead of code |
//! | `http_tool.rs`, `mcp_tool.rs`, `external.rs`, `internal_tool.rs` | the kinds of configured tools |
//! | `embedded.rs`, `embedded/` | the modules in this program, and their declarations |
//! | `modules.rs`, `modules/` | foreign modules and their approvals |
//! | `policy_files.rs`, `expectations.rs` | find and read the files of the policy and of its expectations |
//! | `home.rs` | the mount in which relative paths are resolved |
//! | `lint.rs` | policy lints that need the file system |
//! | `replay.rs`, `mount_usage.rs` | recorded calls: judged again, and the mounts that they used |
//! | `state.rs`, `private_file.rs` | the state folder, and files that only their owner may read |
//! | `sealing.rs`, `witnesses.rs`, `process_start.rs` | the audit log: its checkpoints, and the facts of this process |
//! | `digest.rs` | one hash over several texts |
//! | `spawn.rs` | spawns tasks and threads |
//! | `error.rs` | why a registry cannot be assembled |

pub mod approval;
mod approval_hint;
pub mod arguments;
mod bootstrap;
mod builder;
mod call;
mod configured_tool;
mod digest;
mod embedded;
mod error;
mod executor;
mod expectations;
mod external;
mod home;
pub mod hook;
mod http_tool;
mod internal_tool;
mod lint;
mod mcp_tool;
pub mod modules;
mod mount_usage;
pub mod native;
pub mod output_store;
mod pipeline;
mod policy_files;
mod private_file;
mod process_start;
mod rate_limit;
mod registered;
mod registry;
mod replay;
mod run_labels;
mod sealing;
mod shared_state;
pub mod shell;
mod slots;
mod spawn;
pub mod state;
mod stored_grant;
mod tool_table;
mod vault;
mod web;
mod witnesses;

pub use approval_hint::with_approval_hint;
pub use bootstrap::{
    bootstrap_runtime_tools, builder_for_listing, layer_requirement, open_undo_store, runtime_builder,
    runtime_builder_with,
};
pub use builder::RegistryBuilder;
pub use call::{CallStartListener, Caller, StartingCall, StderrFn, new_call};
pub use configured_tool::ConfiguredTool;
pub use error::BootstrapError;
pub use executor::RegistryExecutor;
pub use expectations::{EXPECTATIONS_FILE, ExpectationTexts};
pub use external::{
    AddedCall, EXTERNAL_CALL_TTL, ExternalCall, ExternalCallState, ExternalCalls, ExternalTool,
    external_call_id,
};
pub use http_tool::{HTTP_TOOL_METHODS, HttpTarget, HttpTool, InvalidHttpTarget};
pub use internal_tool::InternalTool;
pub use lint::lint;
pub use mcp_tool::{MAX_REMOTE_TOOLS, McpTool, RemoteMcpServer, RemoteTool};
pub use mount_usage::{MountUsage, ProfileUse};
pub use pipeline::{
    Counterexample, Coverage, ExpectationKind, ExpectationReport, ExpectationResult, ExplainRequest,
    ExplainedTool, Explainer, Explanation, FailedExpectations, FlowStep, JudgedCall, LateResult, LocatedRule,
    MountGrant, ReachSource, RecordedDecision, RecordedExplanation, RowError, ToolGrants, UncoveredGrant,
    explain_row,
};
pub use policy_files::PolicyFiles;
pub use portcullis_policy::OVERLAY_FILE;
pub use portcullis_sandbox::{
    HostWasmToolRunner,
    hard_links::{HardLinkReport, PrivatePaths, examine_hard_links},
};
pub use portcullis_undo as undo;
pub use private_file::{PrivateFileError, open_private_file};
pub use process_start::{INSTANCE_VARIABLE, record_refused_start};
pub use registered::RegisteredTool;
pub use registry::{NameHolder, RegistryError, ToolChanges, ToolRegistry};
pub use replay::{ChangedVerdict, Replay, ReplayReport};
pub use sealing::write_checkpoint_to_stderr;
pub use web::{SecretError, TakenVariables};

/// Re-exported for callers.
pub use portcullis_types::{EventFn, ToolCall, ToolResult};
/// Re-exported for front ends, which show decisions, layers and rows but do not make them.
pub use {
    portcullis_audit as audit, portcullis_confine as confine, portcullis_policy as policy,
    portcullis_sandbox as sandbox,
};
