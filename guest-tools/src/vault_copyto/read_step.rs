//! The read step: sends a file's bytes, chunk by chunk.

use std::{
    fs::File,
    io::{self, Read},
};

use portcullis_sdk::{
    GuestPath, MAX_CHUNK_BYTES, MAX_TRANSFER_BYTES, ToolContext, ToolError, fs, tool, transfer,
};

/// Reads a file for the write step. A step of `vault_copyto`.
#[tool(tier = ReadOnly, timeout = "30s", profile = VaultRead, deny_unknown)]
pub async fn vault_copyto_read(
    ctx: &ToolContext,
    /// The file, such as `/vault/key.pem`.
    #[arg(path = "read")]
    source_path: &str,
) -> Result<String, ToolError> {
    let path = fs::parse(source_path)?;
    let read_error = |error: io::Error| fs::tool_error(error, "read", &path);
    let mut file = File::open(fs::locate(&path)?).map_err(read_error)?;
    let metadata = file.metadata().map_err(read_error)?;
    if metadata.is_dir() {
        return Err(ToolError::failed(format!("`{path}` is a directory: only a file can be copied")));
    }
    let total = metadata.len();
    ensure_small(total, &path)?;
    let (mut sent, mut reported_percent) = (0, 0);
    let mut chunk = vec![0; MAX_CHUNK_BYTES];
    loop {
        let filled = fill(&mut file, &mut chunk).map_err(read_error)?;
        if filled == 0 {
            return Ok(format!("read {sent} bytes from {path}"));
        }
        sent += filled as u64;
        // Check again, because the file may grow while it is read.
        ensure_small(sent, &path)?;
        transfer::send(ctx, &chunk[..filled])?;
        let percent = (sent * 100).checked_div(total).unwrap_or(100).min(100);
        if percent >= reported_percent + PROGRESS_PERCENT && percent < 100 {
            reported_percent = percent;
            ctx.progress(format!("{percent} % of {total} bytes"));
        }
    }
}

/// The percentage of the file between two progress messages.
const PROGRESS_PERCENT: u64 = 5;

fn ensure_small(bytes: u64, path: &GuestPath) -> Result<(), ToolError> {
    if bytes <= MAX_TRANSFER_BYTES {
        return Ok(());
    }
    let message =
        format!("`{path}` has more than {MAX_TRANSFER_BYTES} bytes, which is the most that is copied");
    Err(ToolError::failed(message))
}

/// Fills the chunk, or reads up to the end of the file.
fn fill(file: &mut File, chunk: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < chunk.len() {
        match file.read(&mut chunk[filled..]) {
            Ok(0) => break,
            Ok(count) => filled += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}
