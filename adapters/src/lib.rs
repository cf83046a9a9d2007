//! Interfaces and event formats of other systems: runs tools and programs written for them, and converts a
//! run's events.
//!
//! Only the names are theirs. Every call goes through a registry and the operator's policy, so a program's
//! tool runs only if the policy enables it by name. This crate decides nothing about a call.
//!
//! | folder | what it is |
//! |---|---|
//! | `into_tool.rs` | converts a tool of any interface for the registry |
//! | `everruns/` | specification 000: its tools, its registry, its loop |
//! | `yoagent/` | specification 002: its tools, its agent, its provider |
//! | `event_formats/` | a run's events in the formats of specifications 000, 002 and 003 |
//!
//! Specification 004's interface has no folder: it is [`portcullis_types::Tool`] itself.
#![forbid(unsafe_code)]

pub mod event_formats;
pub mod everruns;
mod into_tool;
pub mod yoagent;

pub use into_tool::{IntoTool, Portcullis};
