//! `file_write`: creates, replaces or extends a file.
//!
//! Replacing is atomic: a reader sees the old text or the new one, never a part. The new file is written
//! beside the old one and takes its name at the end, which also means that it has new permissions.

use std::{
    fs::{File, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
};

use portcullis_sdk::{GuestPath, ToolError, fs, tool};

/// Writes a text file. Missing parent directories are made.
/// The mode `overwrite` creates the file or replaces it whole, `create` fails where it exists, `append` adds to its end.
/// A symbolic link is never replaced: write to what it leads to.
#[tool(label = "Write file", tier = SideEffecting, timeout = "15s", profile = FileReadWrite, deny_unknown)]
pub async fn file_write(
    /// The file, such as `/shared/notes.md`. Relative paths start at `/shared`.
    #[arg(path = "write")]
    path: &str,
    /// The text to write, exactly as it shall be in the file.
    content: &str,
    /// What to do with a file that exists.
    #[arg(default = "overwrite", one_of("create", "overwrite", "append"))]
    mode: &str,
) -> Result<String, ToolError> {
    let path = fs::parse(path)?;
    let target = fs::locate(&path)?;
    if target.file_name().is_none() {
        return Err(ToolError::invalid_arguments(format!("field 'path': `{path}` names no file")));
    }
    let content = content.as_bytes();
    let written = match mode {
        "create" => with_parents(&target, || create(&target, content)),
        "append" => with_parents(&target, || append(&target, content)),
        _ => {
            refuse_irregular(&target, &path)?;
            with_parents(&target, || replace(&target, content))
        }
    };
    written.map_err(|error| fs::error(error, "write", &path))?;
    let verb = if mode == "append" { "appended" } else { "wrote" };
    Ok(format!("{verb} {} bytes to {path}", content.len()))
}

/// How often a name for the temporary file may be taken already. Names are 64 random bits.
const ATTEMPTS: u32 = 4;

/// Does something that may need the parent directories; makes them only if they are missing, since they
/// are there most of the time.
fn with_parents(target: &Path, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
    match write() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent)?;
            }
            write()
        }
        done => done,
    }
}

/// Renaming would replace a link, a pipe or a device rather than write to it.
fn refuse_irregular(target: &Path, path: &GuestPath) -> Result<(), ToolError> {
    let refusal = match std::fs::symlink_metadata(target) {
        Ok(found) if found.is_symlink() => "is a symbolic link: write to what it leads to",
        Ok(found) if found.is_dir() => "is a directory",
        Ok(found) if !found.is_file() => "is not a regular file",
        // Whatever hinders looking hinders writing too, and is reported there.
        _ => return Ok(()),
    };
    Err(ToolError::failed(format!("cannot write `{path}`: it {refusal}")))
}

/// Makes a file that must not exist; the system decides that, so no two callers both succeed.
fn create(target: &Path, content: &[u8]) -> io::Result<()> {
    let file = OpenOptions::new().write(true).create_new(true).open(target)?;
    fill(file, content).inspect_err(|_| discard(target))
}

fn append(target: &Path, content: &[u8]) -> io::Result<()> {
    OpenOptions::new().append(true).create(true).open(target)?.write_all(content)
}

fn replace(target: &Path, content: &[u8]) -> io::Result<()> {
    let (temporary, file) = temporary(target)?;
    fill(file, content)
        .and_then(|()| std::fs::rename(&temporary, target))
        .inspect_err(|_| discard(&temporary))
}

/// A new file beside the target.
fn temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let path =
            target.with_file_name(format!(".portcullis-tmp-{:016x}", RandomState::new().hash_one(attempt)));
        match OpenOptions::new().write(true).create_new(true).open(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
            opened => return opened.map(|file| (path, file)),
        }
    }
}

fn fill(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)
}

/// Removes what a failed call made. The failure is reported; a second one would only hide it.
fn discard(path: &Path) {
    let _ = std::fs::remove_file(path);
}

#[cfg(test)]
mod tests;
