//! Hostile guest: fails with a given kind and message.

use std::io::Write;

use portcullis_sdk::{ToolError, serde_json::json, tool};

/// Fails with this kind and message, whatever they are.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn echo_error(#[arg(default = "failed")] kind: &str, message: &str) -> Result<String, ToolError> {
    let frame = json!({"error": {"kind": kind, "message": message}});
    let mut stdout = std::io::stdout().lock();
    writeln!(stdout, "{frame}")?;
    stdout.flush()?;
    std::process::exit(0)
}

portcullis_sdk::export_tools![echo_error];
