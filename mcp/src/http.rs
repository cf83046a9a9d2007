//! Serves clients by streamable HTTP, at one path and with one token.
//!
//! | file | what it is |
//! |---|---|
//! | `listen.rs` | the address, connections and their number |
//! | `admission.rs` | checks each request before it is processed |
//! | `open_requests.rs` | tracks the requests being answered |
//! | `token.rs` | the token |

mod admission;
mod listen;
mod open_requests;
mod token;

pub use admission::HttpAccess;
pub use listen::{bind, serve_http};
pub use token::BearerToken;

/// The one path that is served.
pub const MCP_PATH: &str = "/mcp";
