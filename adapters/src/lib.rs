//! Interfaces and event formats of other systems. Runs tools and programs that were written for these
//! systems, and converts a run's events to their formats.
//!
//! Only names and shapes come from the other systems. Every call goes through a registry and the operator's
//! policy, so a program's tool runs only if the policy enables it by name. This crate decides nothing about a
//! call.
//!
//! | folder | what it is |
//! |---|---|
//! | `into_tool.rs` | converts a tool of any interface for the registry |
//! | `everruns/` | Everruns: its tools, its registry, its loop |
//! | `yoagent/` | Yoagent: its tools, its agent, its provider |
//! | `hsafa.rs` | Hsafa: its tool configurations |
//! | `event_formats/` | a run's events in the formats of Everruns, Yoagent and Hsafa |
//!
//! Everruns, Yoagent and Hsafa are other systems for agents. Portcullis's own interface has no folder: it is
//! [`portcullis_types::Tool`] itself.
#![forbid(unsafe_code)]

pub mod event_formats;
pub mod everruns;
pub mod hsafa;
mod into_tool;
pub mod yoagent;

pub use into_tool::{IntoTool, Portcullis};
