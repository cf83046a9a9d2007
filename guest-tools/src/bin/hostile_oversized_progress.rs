//! Hostile guest: sends a progress frame that is too long, then a result.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Reports progress in one line of `bytes` bytes.
#[tool]
async fn oversized_progress(#[arg(default = 2_097_152)] bytes: usize) -> Result<String, ToolError> {
    let frame = format!("{{\"progress\":\"{}\"}}\n", "x".repeat(bytes));
    std::io::stdout().write_all(frame.as_bytes())?;
    Ok("done".to_owned())
}

portcullis_sdk::export_tools![oversized_progress];
