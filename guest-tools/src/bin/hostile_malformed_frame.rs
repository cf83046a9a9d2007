//! Hostile guest: ends with a line that is not a frame.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Answers with something that is not JSON, or with the given line.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn malformed_frame(#[arg(default = "{\"ok\":\"unfinished")] line: &str) -> Result<String, ToolError> {
    let frame = format!("{line}\n");
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(frame.as_ref())?;
    stdout.flush()?;
    std::process::exit(0)
}

portcullis_sdk::export_tools![malformed_frame];
