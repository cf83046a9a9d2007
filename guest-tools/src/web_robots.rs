//! A step of `web_fetch`: receives a host's `robots.txt`, and says whether it allows a page.
//!
//! It has no mount and no network, so that a file which takes it over can only give a wrong answer about its own host.

use portcullis_sdk::{ToolContext, ToolError, ToolOutput, tool, transfer};
use robotxt::Robots;
use serde_json::json;

/// The product token by which a file addresses this program (RFC 9309, section 2.2.1); the host's requests name it.
const AGENT: &str = "portcullis";

/// Reads the `robots.txt` that the host sends. A step of `web_fetch`.
#[tool(tier = ReadOnly, timeout = "10s", profile = Nothing, deny_unknown)]
pub async fn web_fetch_robots(
    ctx: &ToolContext,
    /// The path and the query of the page.
    path: &str,
) -> Result<ToolOutput, ToolError> {
    let mut bytes = Vec::new();
    while let Some(chunk) = transfer::receive(ctx)? {
        bytes.extend_from_slice(&chunk);
    }
    let allowed = allows(&bytes, path);
    Ok(ToolOutput::text(if allowed { "allowed" } else { "disallowed" })
        .with_details(json!({ "allowed": allowed })))
}

/// Whether a file allows a page: by the groups of this program, else by those of all programs.
fn allows(file: &[u8], path: &str) -> bool {
    Robots::parse(file, AGENT).is_allowed(path)
}

#[cfg(test)]
mod tests;
