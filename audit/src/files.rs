//! The files of a log, opened once by name and then used by handle. This module handles bytes and knows nothing about
//! rows.

use std::{
    fs::File,
    io,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::atomic::{AtomicBool, Ordering},
};

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat},
    io::Errno,
};

use super::{error::AuditError, writer::LogDevice};

/// The log's name in the state folder.
pub const LOG_NAME: &str = "audit.jsonl";

/// The path of the log in a state folder.
#[must_use]
pub fn log_path(state_dir: &Path) -> PathBuf {
    state_dir.join(LOG_NAME)
}

/// The files of a log, opened once.
#[derive(Debug)]
pub(super) struct LogFiles {
    /// The state folder.
    pub(super) dir: OwnedFd,
    /// The state folder's path, for messages only.
    pub(super) state_dir: PathBuf,
    /// The open log.
    pub(super) log: File,
    /// The log's path, for messages only.
    pub(super) path: PathBuf,
    /// The system calls that write the log.
    pub(super) device: Box<dyn LogDevice>,
    identity: (u64, u64),
    /// Whether a sync of the log must also sync its directory entry.
    is_new: AtomicBool,
}

impl LogFiles {
    /// Opens the files, and creates the log if it does not exist.
    pub(super) fn open(state_dir: &Path, device: Box<dyn LogDevice>) -> Result<Self, AuditError> {
        let path = log_path(state_dir);
        let failed = |errno: Errno| AuditError::Open { path: path.clone(), source: errno.into() };
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, state_dir, folder, Mode::empty()).map_err(failed)?;
        // Non-blocking, so that a FIFO in the log's place cannot block the open. Regular files ignore the flag.
        let flags = OFlags::RDWR
            | OFlags::APPEND
            | OFlags::CREATE
            | OFlags::NOFOLLOW
            | OFlags::NONBLOCK
            | OFlags::CLOEXEC;
        let log = match openat(&dir, LOG_NAME, flags, Mode::RUSR | Mode::WUSR) {
            Ok(log) => log,
            Err(Errno::LOOP | Errno::ISDIR) => return Err(AuditError::NotAFile { path }),
            Err(errno) => return Err(failed(errno)),
        };
        let stat = fstat(&log).map_err(failed)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(AuditError::NotAFile { path });
        }
        Ok(Self {
            dir,
            state_dir: state_dir.to_owned(),
            log: File::from(log),
            path,
            device,
            identity: (stat.st_dev, stat.st_ino),
            // An empty log may be new, so its directory entry may not be on the disk yet.
            is_new: AtomicBool::new(stat.st_size == 0),
        })
    }

    /// The log's current size. Checks that the log's name still refers to the open file, because rows in a moved or
    /// deleted log would be lost.
    pub(super) fn size(&self) -> Result<u64, AuditError> {
        match statat(&self.dir, LOG_NAME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == self.identity => {
                // Cannot fail: the size of a regular file is not negative.
                Ok(u64::try_from(stat.st_size).unwrap_or_default())
            }
            Ok(_) | Err(Errno::NOENT) => Err(AuditError::Replaced { path: self.path.clone() }),
            Err(errno) => Err(self.read_error(errno.into())),
        }
    }

    /// Syncs the log to the disk.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        self.device.sync(&self.log)?;
        // A new log would be lost without its directory entry. The flag stays clear even if this `fsync` fails, because
        // a sync failure is permanent.
        if self.is_new.swap(false, Ordering::Relaxed) {
            rustix::fs::fsync(&self.dir)?;
        }
        Ok(())
    }

    pub(super) fn read_error(&self, source: io::Error) -> AuditError {
        AuditError::Read { path: self.path.clone(), source }
    }

    pub(super) fn write_error(&self, source: io::Error) -> AuditError {
        AuditError::Write { path: self.path.clone(), source }
    }
}
