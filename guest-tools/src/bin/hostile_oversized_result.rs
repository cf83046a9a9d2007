//! Hostile guest: gives a result that is too long for a frame.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Answers with `bytes` bytes of text.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn oversized_result(#[arg(default = 9_437_184)] bytes: usize) -> Result<String, ToolError> {
    let frame = format!("{{\"ok\":\"{}\"}}\n", "x".repeat(bytes));
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(frame.as_ref())?;
    stdout.flush()?;
    std::process::exit(0)
}

portcullis_sdk::export_tools![oversized_result];
