//! Opens files that contain secrets and that only their owner may read.

use std::{fs::File, io, os::unix::fs::MetadataExt as _, path::Path};

use portcullis_confine::bounded::{self, LastLink};

/// Opens a file that only its owner can read.
///
/// # Errors
/// The system's error, or the reason why the file is refused.
pub fn open_private_file(path: &Path) -> io::Result<File> {
    // Refuse a planted symlink, which could lead to another file.
    let file = bounded::open_regular(path, LastLink::Refuse)?;
    if file.metadata()?.mode() & 0o077 != 0 {
        return Err(io::Error::other("others can read it: its permissions must be 0600"));
    }
    Ok(file)
}
