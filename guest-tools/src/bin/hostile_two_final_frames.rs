//! Hostile guest: sends two results.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Answers twice.
#[tool]
async fn two_final_frames() -> Result<String, ToolError> {
    std::io::stdout().write_all(b"{\"ok\":\"first\"}\n")?;
    Ok("second".to_owned())
}

portcullis_sdk::export_tools![two_final_frames];
