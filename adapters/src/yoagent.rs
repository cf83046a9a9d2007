//! Yoagent: the items that its programs import, all with `use portcullis_adapters::yoagent;`.
//!
//! | file | what it is |
//! |---|---|
//! | `types.rs`, `tool.rs` | types of tools, events and strategies |
//! | `adapt.rs` | adapts a tool of the interface for the registry |
//! | `agent.rs` | [`agent::Agent`], and the stream of events that [`agent::Agent::prompt`] returns |
//! | `provider.rs` | [`provider::AnthropicProvider`] |
//! | `tools.rs` | [`tools::default_tools`] |

mod adapt;
pub mod agent;
pub mod provider;
mod tool;
pub mod tools;
pub mod types;

pub use adapt::Yoagent;
