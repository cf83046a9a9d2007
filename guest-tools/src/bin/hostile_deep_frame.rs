//! Hostile guest: ends with a frame nested deeper than a decoder's stack allows.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Answers with `depth` nested arrays.
#[tool]
#[expect(clippy::exit, reason = "the behaviour under test")]
async fn deep_frame(#[arg(default = 100_000)] depth: usize) -> Result<String, ToolError> {
    let frame =
        format!("{{\"ok\":{{\"content\":[],\"details\":{}{}}}}}\n", "[".repeat(depth), "]".repeat(depth));
    let mut stdout = std::io::stdout().lock();
    stdout.write_all(frame.as_ref())?;
    stdout.flush()?;
    std::process::exit(0)
}

portcullis_sdk::export_tools![deep_frame];
