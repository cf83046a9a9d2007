//! The files of a log: opened once by name, then used by handle. Handles bytes, not rows.

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
    /// Its path, for messages only.
    pub(super) state_dir: PathBuf,
    /// The open log.
    pub(super) log: File,
    /// Its path, for messages only.
    pub(super) path: PathBuf,
    /// The system calls that write the log.
    pub(super) device: Box<dyn LogDevice>,
    identity: (u64, u64),
    /// Whether the log's directory entry must still reach the disk.
    is_new: AtomicBool,
}

impl LogFiles {
    /// Opens the files, and makes the log if it does not exist.
    pub(super) fn open(state_dir: &Path, device: Box<dyn LogDevice>) -> Result<Self, AuditError> {
        let path = log_path(state_dir);
        let failed = |errno: Errno| AuditError::Open { path: path.clone(), source: errno.into() };
        let folder = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = openat(CWD, state_dir, folder, Mode::empty()).map_err(failed)?;
        // Non-blocking, so that a FIFO in the log's place does not hang us. It has no effect on a regular
        // file.
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
            is_new: AtomicBool::new(stat.st_size == 0),
        })
    }

    /// The log's current size. Checks that the log's name still refers to the open file: rows in a moved or
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
        // Without its directory entry a new log is lost whole. The flag is not set again after a failure,
        // which is permanent anyway.
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
