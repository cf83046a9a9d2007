//! Opens files with secrets, which only their owner may read.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, OpenOptionsExt as _},
    path::Path,
};

use rustix::fs::OFlags;

/// Opens a file that only its owner can read.
///
/// # Errors
/// The system's error, or the reason why the file is refused.
pub fn open_private_file(path: &Path) -> io::Result<File> {
    // `NOFOLLOW`: a planted link must not lead to another file. `NONBLOCK`: a FIFO must not hang the open.
    // The conversion cannot fail: both flags are low bits.
    let flags = i32::try_from((OFlags::NOFOLLOW | OFlags::NONBLOCK).bits()).unwrap_or_default();
    let file = fs::OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    // Examine the open file: the path may lead elsewhere by now.
    let metadata = file.metadata()?;
    if !metadata.is_file() {
        return Err(io::Error::other("it is no file"));
    }
    if metadata.mode() & 0o077 != 0 {
        return Err(io::Error::other("others can read it: its permissions must be 0600"));
    }
    Ok(file)
}
