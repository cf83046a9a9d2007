//! Opens files that contain secrets and that only their owner may read.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, path::Path};

use portcullis_confine::bounded::{self, FinalSymlink};
use thiserror::Error;

/// A file cannot be opened as a private file.
#[derive(Debug, Error)]
pub enum PrivateFileError {
    /// The system's error, or the file is not a regular file.
    #[error(transparent)]
    Io(#[from] io::Error),
    /// Users other than the owner have rights.
    #[error("others can read it: its permissions must be 0600")]
    Readable,
}

/// Opens a file that only its owner can read.
///
/// # Errors
/// [`PrivateFileError`] if the file cannot be opened, is not regular, or gives rights to other users.
pub fn open_private_file(path: &Path) -> Result<File, PrivateFileError> {
    // Refuse a planted symlink, which could lead to another file.
    let file = bounded::open_regular(path, FinalSymlink::Refuse)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(PrivateFileError::Readable);
    }
    Ok(file)
}
