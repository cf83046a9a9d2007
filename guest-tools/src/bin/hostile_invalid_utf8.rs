//! Hostile guest: ends with a line that is not UTF-8.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Answers with bytes that are not text.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn invalid_utf8() -> Result<String, ToolError> {
    let frame = b"{\"ok\":\"\xff\xfe\"}\n";
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(frame.as_ref())?;
    stdout.flush()?;
    std::process::exit(0)
}

portcullis_sdk::export_tools![invalid_utf8];
