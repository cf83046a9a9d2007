//! Hostile guest: reads directories of any size, repeatedly if requested.

use portcullis_sdk::{ToolError, tool};

/// Counts the entries of a directory `times` times.
#[tool]
async fn huge_directory(path: &str, #[arg(default = 1)] times: u32) -> Result<String, ToolError> {
    let mut entries = 0;
    for _ in 0..times {
        for entry in std::fs::read_dir(path)? {
            entry?;
            entries += 1;
        }
    }
    Ok(entries.to_string())
}

portcullis_sdk::export_tools![huge_directory];
