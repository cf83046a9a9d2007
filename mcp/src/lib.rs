//! A Model Context Protocol server. It serves any registry to any client, on standard streams or HTTP.
//!
//! It supports revisions up to 2025-11-25. A client's calls go through the same pipeline as all other calls:
//! the server neither adds nor skips a step.
//!
//! | file | what it is |
//! |---|---|
//! | `server.rs` | [`McpServer`]: a registry that is served, and state shared by all sessions |
//! | `session.rs` | the session of one client: its requests |
//! | `tool_catalog.rs` | the tools in the form of each client interface |
//! | `listing.rs`, `call.rs`, `result.rs` | `tools/list`, `tools/call` and its result |
//! | `reports.rs`, `log.rs` | progress, log messages and questions while a call runs |
//! | `client.rs` | lets a tool of this process send reports and questions to the client that calls it |
//! | `approver.rs` | approvals by elicitation |
//! | `elicitation.rs` | one question to a client |
//! | `wire.rs` | decoding of messages, with the raw text of arguments |
//! | `stdio.rs`, `lines.rs`, `streams.rs` | the transport of one message per line |
//! | `unanswered_ids.rs` | unanswered requests |
//! | `http/` | streamable HTTP |
//! | `limits.rs` | all limits |
//! | `error.rs` | why a server cannot serve |
//! | `task.rs` | spawns tasks, other than those of HTTP connections |
#![forbid(unsafe_code)]

mod approver;
mod call;
mod client;
mod elicitation;
mod error;
mod http;
mod limits;
mod lines;
mod listing;
#[expect(
    deprecated,
    reason = "log messages are deprecated only in a later revision than those that are supported here"
)]
mod log;
mod reports;
mod result;
mod server;
#[expect(
    deprecated,
    reason = "log messages are deprecated only in a later revision than those that are supported here"
)]
mod session;
mod stdio;
mod streams;
mod task;
pub mod tool_catalog;
mod unanswered_ids;
mod wire;

pub use client::{Client, ClientError, Clients, ElicitationAnswer};
pub use error::McpError;
pub use http::{BearerToken, HttpAccess, MCP_PATH, TokenFileError, serve_http};
pub use limits::McpLimits;
pub use server::McpServer;
pub use stdio::{serve_lines, serve_stdio};
