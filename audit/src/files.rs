//! The files of a log, opened once by name and then used by descriptor. This module handles only bytes, and
//! does not parse rows.

use std::{
    fs::File,
    io,
    os::fd::{AsFd as _, OwnedFd},
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use jiff::Timestamp;
use parking_lot::Mutex;

use rustix::{
    fs::{AtFlags, CWD, FileType, Mode, OFlags, fstat, openat, statat},
    io::Errno,
};

use super::{
    error::AuditError,
    lock::HeldFile,
    segments::{self, SEGMENT_EXTENSION, SegmentStart},
    writer::LogDevice,
};

/// The log's name in the state folder.
pub const LOG_NAME: &str = "audit.jsonl";

/// The path of the log in a state folder.
#[must_use]
pub fn log_path(state_folder: &Path) -> PathBuf {
    state_folder.join(LOG_NAME)
}

/// The files of a log. The open segment changes when a segment is sealed.
#[derive(Debug)]
pub(super) struct LogFiles {
    /// The state folder.
    pub(super) folder: OwnedFd,
    /// The state folder's path, for messages only.
    pub(super) state_folder: PathBuf,
    /// The log's path, for messages only.
    pub(super) path: PathBuf,
    /// The system calls that write the log.
    pub(super) device: Box<dyn LogDevice>,
    segment: Mutex<Arc<Segment>>,
}

/// An open segment.
#[derive(Debug)]
pub(super) struct Segment {
    /// The open file that holds the segment's rows.
    pub(super) file: File,
    /// The number, from 1.
    pub(super) number: u64,
    /// The length of all earlier segments together, which is this segment's offset in the log.
    pub(super) start_offset: u64,
    /// The number of its first row, even if that row has not been written yet.
    pub(super) first_seq: u64,
    /// When its first row was written. `None` if the segment was empty when it was opened.
    pub(super) started_at: Option<Timestamp>,
    identity: (u64, u64),
    /// Whether a sync of the log must also sync its directory entry.
    is_new: AtomicBool,
}

impl HeldFile for Arc<Segment> {
    fn file(&self) -> &File {
        &self.file
    }
}

impl LogFiles {
    /// Opens the files, and creates the log if it does not exist.
    pub(super) fn open(state_folder: &Path, device: Box<dyn LogDevice>) -> Result<Self, AuditError> {
        let path = log_path(state_folder);
        let failed = |errno: Errno| AuditError::Open { path: path.clone(), source: errno.into() };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let folder = openat(CWD, state_folder, flags, Mode::empty()).map_err(failed)?;
        let segment = Mutex::new(Arc::new(Segment::open(&folder, &path, OFlags::CREATE)?));
        Ok(Self { folder, state_folder: state_folder.to_owned(), path, device, segment })
    }

    /// Returns the open segment, as this process knows it.
    pub(super) fn segment(&self) -> Arc<Segment> {
        Arc::clone(&self.segment.lock())
    }

    pub(super) fn set_segment(&self, segment: Arc<Segment>) {
        *self.segment.lock() = segment;
    }

    /// Opens the current segment: the file with the log's name.
    pub(super) fn open_segment(&self) -> Result<Arc<Segment>, AuditError> {
        match Segment::open(&self.folder, &self.path, OFlags::empty()) {
            Err(AuditError::Open { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                Err(AuditError::Replaced { path: self.path.clone() })
            }
            Err(AuditError::NotAFile { path }) => Err(AuditError::Replaced { path }),
            opened => Ok(Arc::new(opened?)),
        }
    }

    /// Returns the size of a segment if the log's name refers to it. Otherwise the segment was sealed, or the
    /// log was moved or deleted, and rows written to it would be lost.
    pub(super) fn named_size(&self, segment: &Segment) -> Result<Option<u64>, AuditError> {
        match statat(&self.folder, LOG_NAME, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(stat) if (stat.st_dev, stat.st_ino) == segment.identity => {
                // The fallback is unreachable: the size of a regular file is never negative.
                Ok(Some(u64::try_from(stat.st_size).unwrap_or_default()))
            }
            Ok(_) | Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.read_error(errno.into())),
        }
    }

    /// Returns the path of a sealed segment, or `None` if the segment is still open.
    pub(super) fn sealed_name(&self, segment: &Segment) -> Result<Option<PathBuf>, AuditError> {
        let names = segments::listed(&self.state_folder, SEGMENT_EXTENSION)
            .map_err(|source| self.read_error(source))?;
        for name in names.into_iter().filter(|name| name.number == segment.number) {
            let path = segments::path_of(&self.state_folder, &name, SEGMENT_EXTENSION);
            match statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if (stat.st_dev, stat.st_ino) == segment.identity => return Ok(Some(path)),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(self.read_error(errno.into())),
            }
        }
        Ok(None)
    }

    /// Syncs the log.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        let segment = self.segment();
        self.device.sync(&segment.file)?;
        // A new log would be lost without its directory entry. The flag stays cleared even if this `fsync`
        // fails, because a sync failure is permanent.
        if segment.is_new.swap(false, Ordering::Relaxed) {
            self.device.sync_folder(self.folder.as_fd())?;
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

impl Segment {
    /// Opens the segment with the log's name. `create` is `OFlags::CREATE` to create an empty
    /// segment if there is none.
    fn open(folder: &OwnedFd, path: &Path, create: OFlags) -> Result<Self, AuditError> {
        let failed = |errno: Errno| AuditError::Open { path: path.to_owned(), source: errno.into() };
        // Non-blocking, so that opening a FIFO in the log's place returns immediately. Regular
        // files ignore the flag.
        let flags =
            OFlags::RDWR | OFlags::APPEND | create | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(folder, LOG_NAME, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            Err(Errno::LOOP | Errno::ISDIR) => return Err(AuditError::NotAFile { path: path.to_owned() }),
            Err(errno) => return Err(failed(errno)),
        };
        Self::of(File::from(file), path)
    }

    /// Returns the segment in an open file.
    pub(super) fn of(file: File, path: &Path) -> Result<Self, AuditError> {
        let stat =
            fstat(&file).map_err(|errno| AuditError::Open { path: path.to_owned(), source: errno.into() })?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(AuditError::NotAFile { path: path.to_owned() });
        }
        let start =
            SegmentStart::read(&file).map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
        Ok(Self {
            file,
            number: start.number,
            start_offset: start.bytes_before,
            first_seq: start.first_seq,
            started_at: start.started_at,
            identity: (stat.st_dev, stat.st_ino),
            // An empty log may be new, so its directory entry may not have been synced.
            is_new: AtomicBool::new(stat.st_size == 0),
        })
    }

    /// The segment's current size.
    pub(super) fn size(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    /// Reads the first row of the segment from the file.
    pub(super) fn start(&self) -> io::Result<SegmentStart> {
        SegmentStart::read(&self.file)
    }
}
