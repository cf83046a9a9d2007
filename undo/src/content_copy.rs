//! Copies the content of files into a record, and back.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _},
    os::fd::{AsFd, OwnedFd},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

use crate::path_state::{MountPath, MountRoot};

/// Opens a regular file of a mount for reading. The open does not block on a FIFO.
pub(crate) fn open_file(root: &MountRoot, path: &MountPath) -> Result<OwnedFd, Errno> {
    root.open(path, OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY, Mode::empty())
}

/// Whether two files have the same content.
///
/// # Errors
/// The system's reason if a file cannot be read.
pub(crate) fn have_same_content(first: File, second: File) -> io::Result<bool> {
    let (mut first, mut second) = (BufReader::new(first), BufReader::new(second));
    loop {
        let (a, b) = (first.fill_buf()?, second.fill_buf()?);
        let len = a.len().min(b.len());
        if a[..len] != b[..len] || (len == 0 && a.len() != b.len()) {
            return Ok(false);
        }
        if len == 0 {
            return Ok(true);
        }
        first.consume(len);
        second.consume(len);
    }
}

/// Copies a file: as a reflink if the file system supports it (btrfs, XFS), otherwise at most `max_bytes`.
///
/// # Errors
/// The system's reason, such as a full disk.
pub fn copy_content(from: OwnedFd, to: &File, max_bytes: u64) -> io::Result<()> {
    if rustix::fs::ioctl_ficlone(to.as_fd(), from.as_fd()).is_ok() {
        return Ok(());
    }
    // Within one file system, the kernel copies (`copy_file_range(2)`) without a buffer in this process. The
    // limit stops the copy of a file that another process extends as fast as it is copied.
    io::copy(&mut File::from(from).take(max_bytes), &mut &*to)?;
    Ok(())
}
