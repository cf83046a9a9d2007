//! Atomic replacement of a file: a reader sees either the old text or the new text, never a part.
//! [`super::write_atomic`] makes the whole replacement in one call. The functions here are its parts, for a tool
//! that writes in pieces or makes further checks.
//!
//! The new text is written beside the old file and renamed over it. The new file gets the old file's mode if the
//! program can set modes. WASI has no modes, so for a module the host sets the mode.

use std::{
    fs::{File, Metadata, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
};

use portcullis_types::{GuestPath, ToolError};

/// The operation of a tool on the file that it replaces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replacement {
    /// It writes new content.
    Write,
    /// It edits the content.
    Edit,
}

/// Returns the metadata of a path; `None` if the path does not exist or cannot be examined (the next
/// operation reports why). Refuses files that a rename would replace instead of changing: a link, a
/// directory, a pipe or a device.
///
/// # Errors
/// `failed`, with the file's kind.
pub fn regular_file_metadata(
    target: &Path,
    replacement: Replacement,
    path: &GuestPath,
) -> Result<Option<Metadata>, ToolError> {
    let (verb, link) = match replacement {
        Replacement::Write => ("write", "is a symbolic link: write to its target"),
        Replacement::Edit => ("edit", "is a symbolic link: edit its target"),
    };
    let refusal = match std::fs::symlink_metadata(target) {
        Ok(metadata) if metadata.is_symlink() => link,
        Ok(metadata) if metadata.is_dir() => "is a directory",
        Ok(metadata) if !metadata.is_file() => "is not a regular file",
        result => return Ok(result.ok()),
    };
    Err(ToolError::failed(format!("cannot {verb} `{path}`: it {refusal}")))
}

/// Replaces the file at a path, or creates it, with this content. The new content is synced to the disk
/// before it replaces the old content.
///
/// # Errors
/// The system's error. The temporary file is then removed; a call that is killed leaves it behind.
pub fn replace(target: &Path, content: &[u8], replaced: Option<&Metadata>) -> io::Result<()> {
    let (temporary, file) = create_temporary(target)?;
    // Set the mode first, so that the new content is never readable under another mode.
    keep_mode(&file, replaced)
        .and_then(|()| write_to_disk(file, content))
        .and_then(|()| std::fs::rename(&temporary, target))
        .inspect_err(|_| discard(&temporary))
}

/// Gives a new file the mode of the file that it will replace.
///
/// # Errors
/// The system's error.
pub fn keep_mode(file: &File, replaced: Option<&Metadata>) -> io::Result<()> {
    match replaced {
        Some(replaced) if cfg!(unix) => file.set_permissions(replaced.permissions()),
        _ => Ok(()),
    }
}

/// Returns the name of a temporary file beside the target.
#[must_use]
pub fn temporary_path(target: &Path, bits: u64) -> PathBuf {
    target.with_file_name(format!(".portcullis-tmp-{bits:016x}"))
}

/// Creates a file that must not exist. The system checks this atomically, so only one of several callers
/// succeeds.
///
/// # Errors
/// The system's error; `AlreadyExists` if the file exists.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Runs an operation that may need parent directories. The directories are created only after a first
/// failure, because they usually exist.
///
/// # Errors
/// The system's error, or the error of `write`.
pub fn retry_with_parents<T>(target: &Path, write: impl Fn() -> io::Result<T>) -> io::Result<T> {
    match write() {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if let Some(parent) = target.parent() {
                std::fs::create_dir_all(parent)?;
            }
            write()
        }
        result => result,
    }
}

/// Writes a new file's content and closes it.
///
/// # Errors
/// The system's error.
pub fn write_and_close(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)
}

/// Writes a new file's content to the disk and closes it.
fn write_to_disk(mut file: File, content: &[u8]) -> io::Result<()> {
    file.write_all(content)?;
    match file.sync_all() {
        // Some file systems, such as network file systems, do not support this. The content is written
        // anyway.
        Err(error) if matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::Unsupported) => {
            Ok(())
        }
        result => result,
    }
}

/// Removes a file that a failed call left. An error of the removal is ignored, because it would hide the first
/// error.
pub fn discard(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// The maximum number of attempts to find a free name for the temporary file. Names have 64 random bits.
const MAX_ATTEMPTS: u32 = 4;

/// Creates a temporary file beside the target.
fn create_temporary(target: &Path) -> io::Result<(PathBuf, File)> {
    let mut attempt = 0;
    loop {
        attempt += 1;
        let path = temporary_path(target, RandomState::new().hash_one(attempt));
        match create_new(&path) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists && attempt < MAX_ATTEMPTS => {}
            result => return result.map(|file| (path, file)),
        }
    }
}
