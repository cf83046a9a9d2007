//! A server of the Model Context Protocol: any registry, for any client, on standard streams or HTTP.
//!
//! Revisions up to 2025-11-25. What a client calls goes the way of every call; the server adds nothing to it and
//! takes nothing from it.
//!
//! | file | what it is |
//! |---|---|
//! | `server.rs` | [`McpServer`]: a registry that is served, and what all sessions share |
//! | `session.rs` | one client: its requests |
//! | `tool_catalog.rs` | the tools as clients and models are shown them |
//! | `listing.rs`, `call.rs`, `result.rs` | `tools/list`, `tools/call` and what comes of it |
//! | `reports.rs`, `log.rs` | progress, messages, questions of tools, while a call runs |
//! | `client.rs` | what a tool of this process may ask of the client that calls it |
//! | `approver.rs` | approvals by elicitation |
//! | `elicitation.rs` | one question to a client |
//! | `wire.rs` | messages as they come, with arguments as they were written |
//! | `stdio.rs`, `lines.rs`, `streams.rs` | one message a line |
//! | `in_flight.rs` | requests that are not answered yet |
//! | `http/` | streamable HTTP |
//! | `limits.rs` | what bounds all that |
//! | `task.rs` | the one place that spawns |
#![forbid(unsafe_code)]

mod approver;
mod call;
mod client;
mod elicitation;
mod error;
mod http;
mod in_flight;
mod limits;
mod lines;
mod listing;
#[expect(deprecated, reason = "log messages are deprecated in a revision after those that are spoken here")]
mod log;
mod reports;
mod result;
mod server;
#[expect(deprecated, reason = "log messages are deprecated in a revision after those that are spoken here")]
mod session;
mod stdio;
mod streams;
mod task;
pub mod tool_catalog;
mod wire;

pub use client::{Client, ClientError, Clients, Elicited};
pub use error::McpError;
pub use http::{BearerToken, HttpAccess, MCP_PATH, bind, serve_http};
pub use limits::McpLimits;
pub use server::McpServer;
pub use stdio::{serve_lines, serve_stdio};
