//! Live files. They show which of the processes that share a log are alive, and where the open calls of
//! dead processes start.
//!
//! Before its first `begin`, a process creates a file `audit.live/<process>` and keeps it locked. The kernel releases
//! the lock when the process dies. The file holds one number, the *mark*: every `begin` of that process without an
//! `end` is at or after that byte of the log. Recovery after a crash therefore reads only the last calls of the dead
//! process instead of the whole log.
//!
//! The mark is written before the first open `begin`. It advances only with a sync, once all `end`s before
//! the new mark are on disk. So the mark can be too low, which costs recovery some time, but never too high.

use std::{fs::File, io, os::fd::OwnedFd, os::unix::fs::FileExt as _, path::PathBuf, sync::Arc};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, fdatasync, flock, fsync, mkdirat, openat, unlinkat},
    io::Errno,
};

use super::{error::AuditError, files::LogFiles, lock};

/// The folder of the live files.
const LIVE_DIR: &str = "audit.live";

/// This process's live file, locked for as long as this value exists.
#[derive(Debug)]
pub(super) struct LiveFile {
    handles: Arc<LiveFileHandles>,
    mark: Option<u64>,
    unsynced: bool,
}

/// The part of the live file that a sync uses while other threads append.
#[derive(Debug)]
pub(super) struct LiveFileHandles {
    folder: OwnedFd,
    file: File,
    name: String,
    path: PathBuf,
}

impl LiveFile {
    /// Creates and locks the file. The caller holds the log's lock, so no other process sees the file unlocked.
    pub(super) fn create(files: &LogFiles, process: &str) -> Result<Self, AuditError> {
        let path = files.state_folder.join(LIVE_DIR).join(process);
        let failed = |errno: Errno| AuditError::Live { path: path.clone(), source: errno.into() };
        match mkdirat(&files.folder, LIVE_DIR, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let folder = openat(&files.folder, LIVE_DIR, OPEN_FOLDER_FLAGS, Mode::empty()).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&folder, process, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?);
        if !lock::try_lock_until_close(&file).map_err(failed)? {
            return Err(failed(Errno::WOULDBLOCK));
        }
        let handles = Arc::new(LiveFileHandles { folder, file, name: process.to_owned(), path });
        handles.write_mark(None)?;
        Ok(Self { handles, mark: None, unsynced: true })
    }

    /// Sets the mark to the offset of the `begin` that is about to be written, unless there is a mark.
    pub(super) fn ensure_marked(&mut self, offset: u64) -> Result<(), AuditError> {
        if self.mark.is_none() {
            self.handles.write_mark(Some(offset))?;
            self.mark = Some(offset);
            self.unsynced = true;
        }
        Ok(())
    }

    /// Advances the mark, or removes it if no call is open. The module documentation says when this is safe.
    pub(super) fn advance_mark(&mut self, first_open: Option<u64>) {
        let is_worth_writing = match (self.mark, first_open) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(current), Some(next)) => next >= current.saturating_add(MARK_STEP_BYTES),
        };
        if !is_worth_writing {
            return;
        }
        match self.handles.write_mark(first_open) {
            Ok(()) => self.mark = first_open,
            // The old mark is still valid; it only makes recovery read more.
            Err(error) => tracing::warn!(%error, "the audit log's mark was not moved"),
        }
    }

    /// Returns the handles if the file has not been synced. The caller must then sync them.
    pub(super) fn take_unsynced(&mut self) -> Option<Arc<LiveFileHandles>> {
        std::mem::take(&mut self.unsynced).then(|| Arc::clone(&self.handles))
    }

    /// Removes the file, because this process has no open calls.
    pub(super) fn remove(self) -> Result<(), AuditError> {
        self.handles.remove()
    }
}

impl LiveFileHandles {
    /// Syncs the file and its directory entry. Call this before syncing the rows that the mark covers, so
    /// that after a power loss the disk has no such row without its mark.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        fdatasync(&self.file)?;
        fsync(&self.folder)
    }

    fn write_mark(&self, mark: Option<u64>) -> Result<(), AuditError> {
        let text = match mark {
            // A fixed width, so that one write replaces the whole old mark.
            Some(offset) => format!("{offset:020}\n"),
            None => NO_MARK.to_owned(),
        };
        self.file
            .write_all_at(text.as_bytes(), 0)
            .map_err(|source| AuditError::Live { path: self.path.clone(), source })
    }

    fn remove(&self) -> Result<(), AuditError> {
        match unlinkat(&self.folder, self.name.as_str(), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(errno) => Err(AuditError::Live { path: self.path.clone(), source: errno.into() }),
        }
    }
}

impl Drop for LiveFileHandles {
    fn drop(&mut self) {
        // Unlock explicitly, because closing is not enough: a child that another thread is starting holds a
        // copy of the descriptor, and thus the lock, until its `exec`.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The live file of a dead process, which this process keeps locked for as long as the value exists.
#[derive(Debug)]
pub(super) struct DeadLiveFile {
    handles: LiveFileHandles,
    /// The offset of the first row that may be an open call. `None` if the process left no open calls.
    pub(super) mark: Option<u64>,
}

impl DeadLiveFile {
    /// The name of the dead process.
    pub(super) fn process(&self) -> &str {
        &self.handles.name
    }

    /// Removes the file, because the calls of the process have been closed.
    pub(super) fn remove(&self) -> Result<(), AuditError> {
        self.handles.remove()
    }
}

/// Finds the live files of dead processes. The caller holds the log's lock, so only one process
/// searches at a time.
pub(super) fn dead_live_files(files: &LogFiles) -> Result<Vec<DeadLiveFile>, AuditError> {
    let path = files.state_folder.join(LIVE_DIR);
    let failed = |errno: Errno| AuditError::Live { path: path.clone(), source: errno.into() };
    let folder = match openat(&files.folder, LIVE_DIR, OPEN_FOLDER_FLAGS, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    let mut dead_files = Vec::new();
    for entry in Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // This program writes only UTF-8 names, so the file is not a live file.
        let Ok(name) = entry.file_name().to_str() else {
            continue;
        };
        if name == "." || name == ".." {
            continue;
        }
        let path = path.join(name);
        let failed = |source: io::Error| AuditError::Live { path: path.clone(), source };
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = match openat(&folder, name, flags, Mode::empty()) {
            Ok(file) => File::from(file),
            // The process has just exited normally and removed its file.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno.into())),
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidData)));
        }
        // If the lock is held, the process is alive.
        if !lock::try_lock_until_close(&file).map_err(|errno| failed(errno.into()))? {
            continue;
        }
        let mark = read_mark(&file).map_err(failed)?;
        let folder = folder.try_clone().map_err(failed)?;
        dead_files.push(DeadLiveFile {
            handles: LiveFileHandles { folder, file, name: name.to_owned(), path },
            mark,
        });
    }
    Ok(dead_files)
}

/// Reads a mark. An unreadable mark counts as 0: its process was killed between two system calls.
fn read_mark(file: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; NO_MARK.len()];
    let length = file.read_at(&mut bytes, 0)?;
    if bytes == NO_MARK.as_bytes() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&bytes[..length]).unwrap_or_default();
    // Fail closed: a scan from offset 0 misses no open call.
    Ok(Some(text.strip_suffix('\n').and_then(|digits| digits.parse().ok()).unwrap_or(0)))
}

/// The mark advances only if the oldest open call is at least this far beyond it: 64 KiB. This saves writes.
const MARK_STEP_BYTES: u64 = 64 * 1024;

/// The text of an absent mark. It is as long as a mark, so that one write can replace either by the other.
const NO_MARK: &str = "--------------------\n";

const OPEN_FOLDER_FLAGS: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
