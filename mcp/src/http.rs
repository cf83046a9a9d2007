//! Serves clients by streamable HTTP, at one path and with one token.
//!
//! | file | what it is |
//! |---|---|
//! | `serve.rs` | serves until the server must stop |
//! | `admission.rs` | checks each request before it is processed |
//! | `open_requests.rs` | tracks the requests being answered |
//! | `token.rs` | the token |

mod admission;
mod open_requests;
mod serve;
mod token;

pub use admission::HttpAccess;
pub use serve::serve_http;
pub use token::{BearerToken, TokenFileError};

/// The one path that is served.
pub const MCP_PATH: &str = "/mcp";
