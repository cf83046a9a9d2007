//! A step of `web_fetch`: receives a host's `robots.txt`, and returns whether the file allows a page.
//!
//! The step has neither a mount nor a network. A file that exploits a bug of the guest can only falsify the
//! answer about its own host.

use portcullis_sdk::{ToolContext, ToolError, ToolOutput, tool, transfer};
use robotxt::Robots;
use serde_json::json;

/// The product token that files use for this program (RFC 9309, section 2.2.1). The host's requests name it too.
const AGENT: &str = "portcullis";

/// Reads the `robots.txt` that the host sends. A step of `web_fetch`.
#[tool(tier = ReadOnly, timeout = "10s", profile = Nothing, deny_unknown)]
pub async fn web_fetch_robots(
    ctx: &ToolContext,
    /// The path and the query of the page.
    path: &str,
) -> Result<ToolOutput, ToolError> {
    let bytes = transfer::receive_all(ctx)?;
    let is_allowed = allows(&bytes, path);
    Ok(ToolOutput::text(if is_allowed { "allowed" } else { "disallowed" })
        .with_details(json!({ "allowed": is_allowed })))
}

/// Whether a file allows a page, according to the groups of this program, or else the groups for all programs.
fn allows(file: &[u8], path: &str) -> bool {
    Robots::parse(file, AGENT).is_allowed(path)
}

#[cfg(test)]
mod tests;
