//! The tool interfaces that other projects write their tools for, one file each, as their specifications
//! have them. Words only: `portcullis-tools` has the adapters that put such tools behind the pipeline.
//!
//! Specification 004's interface has no file here: it is [`crate::Tool`] itself.

pub mod everruns;
pub mod yoagent;
