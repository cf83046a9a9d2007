//! Other systems' words for what Portcullis has: tools written for their interfaces, programs written for their
//! agents, and a run's events as they name them.
//!
//! The names are theirs, the work is ours: every call goes through a registry and the operator's policy, so a tool of
//! the program's own runs only where the policy enables it by name. Nothing here decides anything about a call.
//!
//! | folder | what it is |
//! |---|---|
//! | `into_tool.rs` | a tool of any interface, as the registry takes tools |
//! | `everruns/` | specification 000: its tools, its registry, its loop |
//! | `yoagent/` | specification 002: its tools, its agent, its provider |
//! | `event_formats/` | a run's events in the words of specifications 000, 002 and 003 |
//!
//! Specification 004's interface has no folder: it is [`portcullis_types::Tool`] itself.
#![forbid(unsafe_code)]

pub mod event_formats;
pub mod everruns;
mod into_tool;
pub mod yoagent;

pub use into_tool::{IntoTool, Own};
