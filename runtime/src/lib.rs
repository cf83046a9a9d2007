//! The command line of Portcullis: reads options, calls the registry, shows the outcome.
//!
//! It decides nothing and enforces nothing. Every tool call goes through
//! [`portcullis_tools::ToolRegistry::execute_with_policy`], every policy through `portcullis-policy`, every
//! proof through `portcullis-confine`; this crate turns options into their input and their output into text.
//!
//! Only the answer of a command goes to standard output; everything else goes to standard error.
//!
//! | file | what it is |
//! |---|---|
//! | `cli.rs` | the options, and the manual that `--help` prints |
//! | `run.rs` | from options to an exit code |
//! | `setup.rs` | the envelope that a registry is assembled from |
//! | `sidecar.rs` | the shell sidecar: which one, and how this program becomes one |
//! | `workspace.rs` | the workspace's first use |
//! | `atomic_dir.rs` | folders made atomically: complete or not at all |
//! | `command/` | one file per command |
//! | `terminal_approver.rs` | asks for approvals at the terminal |
//! | `client_config.rs` | clients' configurations that start a server |
//! | `output/` | text, tables, JSON, and the two streams |
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

mod atomic_dir;
mod cli;
mod client_config;
mod command;
mod error;
mod output;
mod run;
mod setup;
mod sidecar;
mod terminal_approver;
mod workspace;

pub use run::run;
pub use sidecar::OwnSidecar;
