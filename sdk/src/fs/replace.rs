//! Atomic replacement of a file: a reader sees the old text or the new one, never a part.
//! [`super::write_atomic`] does all of it in one call; these are its parts, for a tool that writes in pieces
//! or makes further checks.
//!
//! The new text is written beside the old file and renamed over it. The new file gets the old one's mode
//! where a program can set one. WASI has no modes, so for a module the host does that.

use std::{
    fs::{File, Metadata, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
};

use portcullis_types::{GuestPath, ToolError};

/// The metadata of a path; none if it does not exist or cannot be examined (the next operation reports that).
/// Refuses files that a rename would replace instead of writing to: a link, a directory, a pipe or a device.
///
/// # Errors
/// `failed`, with the file's kind. `verb` is the operation of the tool.
pub fn regular(target: &Path, verb: &str, path: &GuestPath) -> Result<Option<Metadata>, ToolError> {
    let refusal = match std::fs::symlink_metadata(target) {
        Ok(found) if found.is_symlink() && verb == "write" => {
            "is a symbolic link: write to what it leads to".to_owned()
        }
        Ok(found) if found.is_symlink() => format!("is a symbolic link: {verb} what it leads to"),
        Ok(found) if found.is_dir() => "is a directory".to_owned(),
        Ok(found) if !found.is_file() => "is not a regular file".to_owned(),
        found => return Ok(found.ok()),
    };
    Err(ToolError::failed(format!("cannot {verb} `{path}`: it {refusal}")))
}

/// Replaces the file at a path, or creates it, with this content.
///
/// # Errors
/// The system's; the temporary file is removed. A call that is killed leaves it behind.
pub fn replace(target: &Path, content: &[u8], before: Option<&Metadata>) -> io::Result<()> {
    let (temporary, file) = temporary(target)?;
    keep_mode(&file, before)
        .and_then(|()| fill(file, content))
        .and_then(|()| std::fs::rename(&temporary, target))
        .inspect_err(|_| discard(&temporary))
}

/// Gives a new file the mode of the one that it will replace.
///
/// # Errors
/// The system's.
pub fn keep_mode(file: &File, before: Option<&Metadata>) -> io::Result<()> {
    match before {
        Some(before) if cfg!(unix) => file.set_permissions(before.permissions()),
        _ => Ok(()),
    }
}

/// The name of a temporary file beside the target.
#[must_use]
pub fn beside(target: &Path, bits: u64) -> PathBuf {
    target.with_file_name(format!(".portcullis-tmp-{bits:016x}"))
}

/// Creates a file that must not exist. The system checks that atomically, so only one of several callers
/// succeeds.
///
/// # Errors
/// The system's; `AlreadyExists` if it exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Runs an operation that may need parent directories. Makes them only if they are missing, since they mostly
/// exist.
///
/// # Errors
/// The system's, or that of `write`.
pub fn with_parents<T>(target: &Path, write: impl Fn() -> io::Result<T>) -> io::Result<T> {
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

/// Writes a new file's content and closes it.
///
/// # Errors
/// The system's.
pub fn fill(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)
}

/// Removes a file that a failed call left. An error of the removal is ignored, since it would hide the first
/// one.
pub fn discard(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// The most attempts at a name for the temporary file. Names have 64 random bits.
const ATTEMPTS: u32 = 4;

/// Creates a temporary file beside the target.
fn temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let path = beside(target, RandomState::new().hash_one(attempt));
        match create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < ATTEMPTS => {}
            opened => return opened.map(|file| (path, file)),
        }
    }
}
