//! Hostile guest: reads a file, waits, and writes it back in place with one more line.

use std::{fs, time::Duration};

use portcullis_sdk::{ToolError, tool};

/// Adds a line to a file.
#[tool(tier = SideEffecting)]
async fn read_modify_write(path: &str, line: &str) -> Result<String, ToolError> {
    let mut text = fs::read_to_string(path).unwrap_or_default();
    // The wait is long enough for a concurrent call to read the same text.
    std::thread::sleep(Duration::from_millis(5));
    text.push_str(line);
    text.push('\n');
    fs::write(path, &text)?;
    Ok(format!("{} bytes", text.len()))
}

portcullis_sdk::export_tools![read_modify_write];
