//! Tools written for other interfaces, behind our pipeline: an adapter for each specification that has a
//! tool interface of its own, and [`IntoTool`], by which [`crate::RegistryBuilder::tool`] takes them all.
//!
//! The interfaces are words of `portcullis_types::compat`; nothing here decides anything about a call.

pub mod everruns;
mod into_tool;
pub mod yoagent;

pub use into_tool::{IntoTool, Native, Own};
