//! The command line of Portcullis: parses options, calls the registry, and shows the outcome.
//!
//! This crate makes no decisions and enforces nothing. Every tool call goes through
//! [`portcullis_tools::ToolRegistry::execute_with_policy`], every policy through `portcullis-policy`, and
//! every proof through `portcullis-confine`. This crate converts options to their input, and their output to
//! text.
//!
//! Only the answer of a command goes to standard output. Everything else goes to standard error.
//!
//! | file | what it is |
//! |---|---|
//! | `cli.rs` | the options, and the manual that `--help` prints |
//! | `run.rs` | from options to an exit code |
//! | `setup.rs` | assembles a registry from the options |
//! | `sidecar.rs` | the shell sidecar: which one the options name, and how it is started |
//! | `agent_file.rs` | the operator's default model, and prices |
//! | `tool_file.rs` | reads the files of configured tools |
//! | `notify.rs` | tells the operator's program that a call waits for an approval |
//! | `run_store.rs` | opens the store of runs |
//! | `policy_edit.rs` | edits of a policy that keep its comments; `rule_writer.rs` writes standing approvals so |
//! | `project.rs` | existing folders with their own policies; `toolchain.rs` finds what their commands need |
//! | `workspace.rs` | the workspace's first use |
//! | `atomic_dir.rs` | folders made atomically: complete or not at all |
//! | `command/` | one file per command |
//! | `terminal_approver.rs` | asks for approvals at the terminal |
//! | `line_editor.rs` | reads lines at the terminal, with editing and a history |
//! | `client_config.rs` | the configurations with which clients start a server |
//! | `output/`, `error.rs` | text, tables, JSON, and the two streams; errors with their exit codes |
//!
//! | feature | what it adds |
//! |---|---|
//! | `otel` | `portcullis_agent::telemetry`: spans and metrics of an agent's runs; off by default, and it enforces nothing |
//!
//! ```
//! use std::process::ExitCode;
//!
//! assert_eq!(portcullis::run(["portcullis", "policy", "default"].map(Into::into)), ExitCode::SUCCESS);
//! ```
#![forbid(unsafe_code)]

mod agent_file;
mod atomic_dir;
mod cli;
mod client_config;
mod command;
mod error;
mod line_editor;
mod notify;
mod output;
mod policy_edit;
mod project;
mod rule_writer;
mod run;
mod run_store;
mod setup;
mod sidecar;
mod terminal_approver;
mod tool_file;
mod toolchain;
mod workspace;

pub use run::run;
pub use sidecar::OwnSidecar;
