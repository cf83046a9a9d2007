//! Hostile guest: floods its standard error without a line break.

use std::io::Write;

use portcullis_sdk::{ToolError, tool};

/// Writes `bytes` bytes to standard error, without a line break.
#[tool]
async fn stderr_flood(#[arg(default = 1_073_741_824)] bytes: u64) -> Result<String, ToolError> {
    let chunk = [b'x'; 64 << 10];
    let mut remaining = bytes;
    let mut stderr = std::io::stderr().lock();
    while remaining > 0 {
        let count = chunk.len().min(usize::try_from(remaining).unwrap_or(chunk.len()));
        stderr.write_all(&chunk[..count])?;
        remaining -= count as u64;
    }
    Ok(format!("wrote {bytes} bytes"))
}

portcullis_sdk::export_tools![stderr_flood];
