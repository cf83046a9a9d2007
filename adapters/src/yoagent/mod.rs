//! Specification 002: what its programs import. `use portcullis_adapters::yoagent;` is all that one needs before its
//! own lines.
//!
//! | file | what it is |
//! |---|---|
//! | `types.rs`, `tool.rs` | the vocabulary of tools, the events, the strategies |
//! | `adapt.rs` | a tool of the interface, as the registry takes tools |
//! | `agent.rs` | [`agent::Agent`], and the stream of events that [`agent::Agent::prompt`] gives |
//! | `provider.rs` | [`provider::AnthropicProvider`] |
//! | `tools.rs` | [`tools::default_tools`] |

mod adapt;
pub mod agent;
pub mod provider;
mod tool;
pub mod tools;
pub mod types;

pub use adapt::Yoagent;
