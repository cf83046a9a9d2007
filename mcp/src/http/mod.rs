//! Serves clients by streamable HTTP, one path, one token.
//!
//! | file | what it is |
//! |---|---|
//! | `listen.rs` | the address, connections and their number |
//! | `admission.rs` | what a request must show before anything is read of it |
//! | `answering.rs` | requests that are being answered |
//! | `token.rs` | the token |

mod admission;
mod answering;
mod listen;
mod token;

pub use admission::HttpAccess;
pub use listen::{bind, serve_http};
pub use token::BearerToken;

/// The one path that is served.
pub const MCP_PATH: &str = "/mcp";
