//! Specification 002: what its programs import. `use portcullis::compat::yoagent;` is all that one needs
//! before its own lines.
//!
//! | module | what it has |
//! |---|---|
//! | `agent` | [`agent::Agent`], and the stream of events that [`agent::Agent::prompt`] gives |
//! | `provider` | [`provider::AnthropicProvider`] |
//! | `tools` | [`tools::default_tools`] |
//! | `types` | the vocabulary of tools, the events, the strategies |

pub mod agent;
pub mod provider;
pub mod tools;
pub mod types;
