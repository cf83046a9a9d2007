//! The command line of Portcullis: reads options, calls the registry, shows what came of it.
//!
//! It decides nothing and enforces nothing. Every tool call goes through
//! [`portcullis_tools::ToolRegistry::execute_with_policy`], every policy through `portcullis-policy`, every
//! proof through `portcullis-confine`; this crate turns options into their input and their output into text.
//!
//! The answer of a command goes to standard output and nothing else does; all that is said about it goes to
//! standard error.
//!
//! | file | what it is |
//! |---|---|
//! | `cli.rs` | the options, and the manual that `--help` prints |
//! | `run.rs` | from options to an exit code |
//! | `setup.rs` | the envelope that a registry is put together from |
//! | `sidecar.rs` | the shell sidecar: which one, and how this program becomes one |
//! | `workspace.rs` | the workspace's first use |
//! | `atomic_dir.rs` | folders that are there whole or not at all |
//! | `command/` | one file per command |
//! | `terminal_approver.rs` | asks for approvals at the terminal |
//! | `client_config.rs` | what clients' configurations must say to start a server |
//! | `output/` | text, tables, JSON, and the two streams |
//!
//! | feature | what it adds |
//! |---|---|
//! | `otel` | `portcullis_agent::telemetry`: spans and metrics of an agent's runs; off by default, and nothing is enforced by it |
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
