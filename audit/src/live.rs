//! Live files: which processes that share a log are alive, and where the open calls of dead ones begin.
//!
//! Before its first `begin`, a process makes a file `audit.live/<process>` and keeps it locked; the kernel
//! releases the lock when the process dies. The file holds one number, the *mark*: every
//! `begin` of that process without an `end` stands at or after that byte of the log. So recovery after a
//! crash reads only the last calls of the dead process and not the whole log. The mark is written before the
//! first open `begin`. Only the syncing thread advances it, after the `end`s before it are on the disk: the
//! mark may be too low, which costs time, and is never too high.

use std::{fs::File, io, os::fd::OwnedFd, os::unix::fs::FileExt as _, path::PathBuf, sync::Arc};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, fdatasync, flock, fsync, mkdirat, openat, unlinkat},
    io::Errno,
};

use super::{error::AuditError, files::LogFiles, lock};

/// The folder of the live files.
const LIVE_DIR: &str = "audit.live";

/// This process's live file, locked as long as this value exists.
#[derive(Debug)]
pub(super) struct LiveFile {
    handles: Arc<LiveFileHandles>,
    mark: Option<u64>,
    unsynced: bool,
}

/// The part that the syncing thread uses while others append.
#[derive(Debug)]
pub(super) struct LiveFileHandles {
    folder: OwnedFd,
    file: File,
    name: String,
    path: PathBuf,
}

impl LiveFile {
    /// Makes the file. The caller holds the log's lock, so no other process sees the file before it is
    /// locked.
    pub(super) fn create(files: &LogFiles, process: &str) -> Result<Self, AuditError> {
        let path = files.state_dir.join(LIVE_DIR).join(process);
        let failed = |errno: Errno| AuditError::Live { path: path.clone(), source: errno.into() };
        match mkdirat(&files.dir, LIVE_DIR, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(failed(errno)),
        }
        let folder = openat(&files.dir, LIVE_DIR, FOLDER, Mode::empty()).map_err(failed)?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(openat(&folder, process, flags, Mode::RUSR | Mode::WUSR).map_err(failed)?);
        if !lock::try_keep(&file).map_err(failed)? {
            return Err(failed(Errno::WOULDBLOCK));
        }
        let handles = Arc::new(LiveFileHandles { folder, file, name: process.to_owned(), path });
        handles.write_mark(None)?;
        Ok(Self { handles, mark: None, unsynced: true })
    }

    /// Sets the mark, if there is none, to the offset of the `begin` that is about to be written.
    pub(super) fn ensure_marked(&mut self, offset: u64) -> Result<(), AuditError> {
        if self.mark.is_none() {
            self.handles.write_mark(Some(offset))?;
            self.mark = Some(offset);
            self.unsynced = true;
        }
        Ok(())
    }

    /// Advances the mark, or removes it if no call is open. The module doc says when that is safe.
    pub(super) fn advance_mark(&mut self, first_open: Option<u64>) {
        let worth_it = match (self.mark, first_open) {
            (None, _) => false,
            (Some(_), None) => true,
            (Some(mark), Some(offset)) => offset >= mark.saturating_add(MARK_STEP_BYTES),
        };
        if !worth_it {
            return;
        }
        match self.handles.write_mark(first_open) {
            Ok(()) => self.mark = first_open,
            // The old mark stays valid and only costs time.
            Err(error) => tracing::warn!(%error, "the audit log's mark was not moved"),
        }
    }

    /// Takes the handles if the file is not synced yet. The caller must sync them.
    pub(super) fn take_unsynced(&mut self) -> Option<Arc<LiveFileHandles>> {
        std::mem::take(&mut self.unsynced).then(|| Arc::clone(&self.handles))
    }

    /// Removes the file: this process left no call open.
    pub(super) fn remove(self) -> Result<(), AuditError> {
        self.handles.remove()
    }
}

impl LiveFileHandles {
    /// Syncs the file and its directory entry. Runs before the rows that the mark covers are synced, so that
    /// after a power loss they are never on the disk without it.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        fdatasync(&self.file)?;
        fsync(&self.folder)
    }

    fn write_mark(&self, mark: Option<u64>) -> Result<(), AuditError> {
        let text = match mark {
            // Of fixed width, so that one write replaces the old mark.
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
        // Unlock explicitly: closing is not enough, since a child that another thread is starting holds a
        // copy of the descriptor until its `exec`, and the lock would last that long.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The live file of a dead process, locked by us as long as this value exists.
#[derive(Debug)]
pub(super) struct DeadLiveFile {
    handles: LiveFileHandles,
    /// The offset from which it may have left calls open; none if it left none.
    pub(super) mark: Option<u64>,
}

impl DeadLiveFile {
    /// The name of the process.
    pub(super) fn process(&self) -> &str {
        &self.handles.name
    }

    /// Removes the file: its calls are closed.
    pub(super) fn remove(&self) -> Result<(), AuditError> {
        self.handles.remove()
    }
}

/// The dead processes. The caller holds the log's lock, so only one process searches at a time.
pub(super) fn dead(files: &LogFiles) -> Result<Vec<DeadLiveFile>, AuditError> {
    let path = files.state_dir.join(LIVE_DIR);
    let failed = |errno: Errno| AuditError::Live { path: path.clone(), source: errno.into() };
    let folder = match openat(&files.dir, LIVE_DIR, FOLDER, Mode::empty()) {
        Ok(folder) => folder,
        Err(Errno::NOENT) => return Ok(Vec::new()),
        Err(errno) => return Err(failed(errno)),
    };
    let mut dead = Vec::new();
    for entry in Dir::read_from(&folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        // A name that is not UTF-8 is not ours.
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
            // The process has just exited cleanly.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno.into())),
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidData)));
        }
        // Locked: that process is alive.
        if !lock::try_keep(&file).map_err(|errno| failed(errno.into()))? {
            continue;
        }
        let mark = read_mark(&file).map_err(failed)?;
        let folder = folder.try_clone().map_err(failed)?;
        dead.push(DeadLiveFile {
            handles: LiveFileHandles { folder, file, name: name.to_owned(), path },
            mark,
        });
    }
    Ok(dead)
}

/// Reads a mark. An unreadable one, of a process killed between two system calls, covers the whole log.
fn read_mark(file: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; NO_MARK.len()];
    let read = file.read_at(&mut bytes, 0)?;
    if bytes == NO_MARK.as_bytes() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&bytes[..read]).unwrap_or_default();
    // Fail closed: from byte 0 on no open call is missed.
    Ok(Some(text.strip_suffix('\n').and_then(|digits| digits.parse().ok()).unwrap_or(0)))
}

/// The distance from the mark to the oldest open call at which the mark advances, to save writes.
const MARK_STEP_BYTES: u64 = 64 * 1024;

/// As long as any mark, so that one write replaces the other.
const NO_MARK: &str = "--------------------\n";

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
