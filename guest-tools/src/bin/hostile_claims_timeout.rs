//! Hostile guest: claims an error kind that only the host may report.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Fails with a kind that a guest may not claim.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn claims_timeout(#[arg(default = "timeout")] kind: &str) -> Result<String, ToolError> {
    let frame = format!("{{\"error\":{{\"kind\":\"{kind}\",\"message\":\"out of time\"}}}}\n");
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(frame.as_ref())?;
    stdout.flush()?;
    std::process::exit(0)
}

portcullis_sdk::export_tools![claims_timeout];
