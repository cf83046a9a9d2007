//! Replacing a file whole: a reader sees the old text or the new one, never a part. [`super::write_atomic`] is all of it
//! in one call; these are its parts, for a tool that writes in pieces or has more to check.
//!
//! The new text is written beside the old one and takes its name at the end. The new file has the old
//! one's mode where a program can set one; WASI has no modes, so in a module that is the host's affair.

use std::{
    fs::{File, Metadata, OpenOptions},
    hash::{BuildHasher, RandomState},
    io::{self, Write},
    path::{Path, PathBuf},
};

use portcullis_types::{GuestPath, ToolError};

/// What stands at a path now; none where nothing does, or where it cannot be looked at, which whatever
/// comes next will report. Refuses what renaming would replace rather than write to: a link, a directory,
/// a pipe or a device.
///
/// # Errors
/// `failed`, with what it is. `verb` is what the tool was about to do.
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

/// Puts a file with this content in the place of what stood there, if anything did.
///
/// # Errors
/// The system's; the temporary file is removed then. A call that is killed leaves it.
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

/// Makes a file that must not exist; the system decides that, so no two callers both succeed.
///
/// # Errors
/// The system's; `AlreadyExists` where it does.
pub fn create_new(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).create_new(true).open(path)
}

/// Does something that may need the parent directories; makes them only if they are missing, since they
/// are there most of the time.
///
/// # Errors
/// The system's, or what `write` gives.
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

/// Removes what a failed call made. The failure is reported; a second one would only hide it.
pub fn discard(path: &Path) {
    let _ = std::fs::remove_file(path);
}

/// How often a name for the temporary file may be taken already. Names are 64 random bits.
const ATTEMPTS: u32 = 4;

/// A new file beside the target.
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
