//! Serves clients by streamable HTTP, one path, one token.
//!
//! | file | what it is |
//! |---|---|
//! | `listen.rs` | the address, connections and their number |
//! | `gate.rs` | what a request must show before anything is read of it |
//! | `answering.rs` | requests that are being answered |
//! | `token.rs` | the token |

mod answering;
mod gate;
mod listen;
mod token;

pub use gate::HttpAccess;
pub use listen::{bind, serve_http};
pub use token::BearerToken;

/// The one path that is served.
pub const MCP_PATH: &str = "/mcp";
