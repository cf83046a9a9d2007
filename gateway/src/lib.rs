//! The gateway: agents that live in spaces with people, behind HTTP.
//!
//! An agent has an inbox. Entries in it start a cycle: one durable run that takes them. In the cycle the
//! agent enters a space, writes there, and calls tools. A call of a visible tool is a message of the space,
//! where a person can give its result. [`Gateway`] serves the HTTP interface and wakes the agents.
//!
//! | file | what it is |
//! |---|---|
//! | `serve.rs`, `connections.rs` | starts a gateway, and serves its connections |
//! | `state.rs` | the parts that requests and cycles share |
//! | `routes/` | the interface: one file for each kind of resource, and its description in OpenAPI |
//! | `allowance.rs` | how many messages a user may send |
//! | `access.rs` | who a request is from, and what it may see |
//! | `resource.rs`, `store_enums.rs`, `from_store.rs` | the things of the interface as JSON, made from rows of the store |
//! | `error.rs` | refusals |
//! | `topic.rs`, `hub.rs`, `sse.rs`, `stream_access.rs` | events: whom they are for, how they reach readers, the stream of one reader, and its right to it |
//! | `cycles.rs`, `cycle/` | which agents have a cycle, and a cycle |
//! | `prompt.rs` | the text that an agent's model reads |
//! | `builtins/` | the built-in tools of every agent |
//! | `agent_tool.rs`, `agent_servers.rs`, `capabilities.rs` | the tools of an agent's definition |
//! | `audit_rows.rs` | the rows of the audit log about a run |
//! | `page.rs` | the page |
#![forbid(unsafe_code)]

mod access;
mod agent_servers;
mod agent_tool;
mod allowance;
mod audit_rows;
mod builtins;
mod capabilities;
mod connections;
mod cycle;
mod cycles;
mod error;
mod from_store;
mod hub;
mod page;
mod prompt;
mod resource;
mod routes;
mod serve;
mod sse;
mod state;
mod store_enums;
mod stream_access;
mod topic;

pub use crate::{
    agent_tool::tool_names,
    error::{GatewayError, GatewayRequestError},
    serve::{Gateway, GatewayParts},
    state::{ChosenModel, Models},
};

/// The prefix of an agent's id, which is also the id of its inbox.
pub(crate) const AGENT_PREFIX: &str = "agt_";

/// The prefix of a user's id.
pub(crate) const USER_PREFIX: &str = "usr_";

/// Returns the OpenAPI 3.1 description of the interface, as JSON.
#[must_use]
pub fn openapi() -> serde_json::Value {
    serde_json::to_value(routes::description()).unwrap_or_default()
}
