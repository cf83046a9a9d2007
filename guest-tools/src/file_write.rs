//! `file_write`: creates, replaces or extends a file.
//!
//! A replacement is atomic ([`fs::replace`]): a reader sees the old text or the new text, never a part of one.

use std::{
    fs::OpenOptions,
    io::{self, Write},
    path::Path,
};

use portcullis_sdk::{
    ToolError,
    fs::{
        self,
        replace::{create_new, discard, retry_with_parents, write_and_close},
    },
    tool,
};

/// Writes a text file. Missing parent directories are made.
/// The mode `overwrite` creates the file or replaces it whole, `create` fails if the file exists, `append` adds to its end.
/// A symbolic link is never replaced: write to its target.
#[tool(label = "Write file", tier = SideEffecting, timeout = "15s", profile = FileReadWrite, deny_unknown)]
pub async fn file_write(
    /// The file, such as `/shared/notes.md`. Relative paths start at `/shared`.
    #[arg(path = "write")]
    path: &str,
    /// The text to write, exactly as it should appear in the file.
    content: &str,
    /// The action if the file exists.
    #[arg(default = "overwrite", one_of("create", "overwrite", "append"))]
    mode: &str,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    let target = fs::locate(&path)?;
    if target.file_name().is_none() {
        return Err(ToolError::invalid_arguments(format!("field 'path': `{path}` names no file")));
    }
    let content = content.as_bytes();
    let write_error = |error| fs::tool_error(error, "write", &path);
    match mode {
        "create" => retry_with_parents(&target, || create(&target, content)).map_err(write_error)?,
        "append" => retry_with_parents(&target, || append(&target, content)).map_err(write_error)?,
        _ => fs::write_atomic(&path, content)?,
    }
    let verb = if mode == "append" { "appended" } else { "wrote" };
    Ok(format!("{verb} {} bytes to {path}", content.len()))
}

/// Creates a file that must not exist yet. The system checks this atomically, so only one of several callers succeeds.
fn create(target: &Path, content: &[u8]) -> io::Result<()> {
    write_and_close(create_new(target)?, content).inspect_err(|_| discard(target))
}

fn append(target: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(target)?.write_all(content)
}

#[cfg(test)]
mod tests;
