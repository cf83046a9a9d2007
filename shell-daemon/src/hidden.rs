//! Finds the files and folders below a session's mounts whose names the policy hides. The session's own file tree
//! covers them.
//!
//! The scan runs once, when a session starts. Landlock cannot do this work: it cannot withhold a part of a folder
//! that it permits. A matching file that a command makes later is not covered, because the session has written its
//! content itself.

use std::{
    ffi::OsStr,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::OsStrExt as _,
    },
    path::{Path, PathBuf},
    time::Instant,
};

use portcullis_policy::HiddenNames;
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};

use crate::{
    SessionSpec, ShellError,
    limits::{HIDDEN_SEARCH_TIMEOUT, MAX_HIDDEN_BYTES, MAX_HIDDEN_ENTRIES},
    setup::open_mount,
};

/// Finds the existing files and folders with hidden names, as paths in the session's own file tree.
///
/// # Errors
/// [`ShellError::TooMuchToHide`] if there are more than a session can cover, or the mounts are too large to be read.
/// [`ShellError::MountOpen`] if a mount cannot be opened.
pub(crate) fn find(spec: &SessionSpec) -> Result<Vec<PathBuf>, ShellError> {
    let mut scan = HiddenScan {
        names: &spec.hide,
        found_paths: Vec::new(),
        bytes: 0,
        entries: 0,
        deadline: Instant::now() + HIDDEN_SEARCH_TIMEOUT,
    };
    if spec.hide.is_empty() {
        return Ok(scan.found_paths);
    }
    for mount in spec.mounts.iter().filter(|mount| HiddenNames::apply_to_mount(&mount.name)) {
        scan.mount(&open_mount(&mount.path)?, &Path::new("/").join(&mount.name))?;
    }
    Ok(scan.found_paths)
}

struct HiddenScan<'a> {
    names: &'a HiddenNames,
    found_paths: Vec<PathBuf>,
    /// The bytes that the paths found take in the setup message.
    bytes: usize,
    entries: usize,
    deadline: Instant,
}

impl HiddenScan<'_> {
    /// Reads all folders of a mount. No link is followed.
    fn mount(&mut self, mount: &OwnedFd, session_path: &Path) -> Result<(), ShellError> {
        let mut folders = vec![PathBuf::from(".")];
        while let Some(relative_path) = folders.pop() {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(folder) = rustix::fs::openat(mount, &relative_path, flags, Mode::empty()) else {
                // Skip a folder that this process may not read, or that is gone. The session's user may read no more
                // than this process.
                continue;
            };
            for entry in Dir::read_from(&folder).into_iter().flatten() {
                let Ok(entry) = entry else { break };
                let name = OsStr::from_bytes(entry.file_name().to_bytes());
                if name == "." || name == ".." {
                    continue;
                }
                self.count_entry()?;
                let path = relative_path.join(name);
                if self.names.hides(&name.to_string_lossy()).is_some() {
                    self.add_path(session_path.join(path.strip_prefix(".").unwrap_or(&path)))?;
                } else if is_folder(&folder, &entry) {
                    folders.push(path);
                }
            }
        }
        Ok(())
    }

    fn count_entry(&mut self) -> Result<(), ShellError> {
        self.entries += 1;
        let is_late = self.entries.is_multiple_of(1024) && Instant::now() >= self.deadline;
        if self.entries > MAX_HIDDEN_ENTRIES || is_late {
            return Err(ShellError::TooMuchToHide {
                problem: "the mounts hold more files than are searched",
            });
        }
        Ok(())
    }

    fn add_path(&mut self, path: PathBuf) -> Result<(), ShellError> {
        self.bytes += path.as_os_str().len() + 8;
        if path.to_str().is_none() {
            return Err(ShellError::TooMuchToHide {
                problem: "the path of one is not UTF-8, so it cannot be covered",
            });
        }
        if self.bytes > MAX_HIDDEN_BYTES {
            return Err(ShellError::TooMuchToHide { problem: "there are more than a session can cover" });
        }
        self.found_paths.push(path);
        Ok(())
    }
}

/// Whether an entry is a folder. Some file systems do not report the type in the listing.
fn is_folder(folder: &OwnedFd, entry: &rustix::fs::DirEntry) -> bool {
    match entry.file_type() {
        FileType::Directory => true,
        FileType::Unknown => {
            let stat: Result<_, Errno> =
                rustix::fs::statat(folder.as_fd(), entry.file_name(), AtFlags::SYMLINK_NOFOLLOW);
            stat.is_ok_and(|stat| FileType::from_raw_mode(stat.st_mode) == FileType::Directory)
        }
        _ => false,
    }
}
