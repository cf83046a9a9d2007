//! Which processes that share a log are alive, and where to look for the calls of those that are not.
//!
//! A process that writes a `begin` first makes a file `audit.live/<process>` and keeps it locked; the
//! kernel gives the lock back when the process dies, however it dies. The file holds one number, the
//! *mark*: every `begin` of that process without an `end` stands at or behind that byte of the log. So a
//! start after a crash reads the last calls of the dead and not the whole log. The mark is put before the
//! first open `begin` is written, and moved on by the synchronising thread only, once the `end`s before it
//! are on the disk: it may be too low, which costs time, and is never too high.

use std::{fs::File, io, os::fd::OwnedFd, os::unix::fs::FileExt as _, path::PathBuf, sync::Arc};

use rustix::{
    fs::{AtFlags, Dir, FlockOperation, Mode, OFlags, fdatasync, flock, fsync, mkdirat, openat, unlinkat},
    io::Errno,
};

use super::{error::AuditError, files::Files, lock};

/// The folder of the files of living processes.
const LIVE_DIR: &str = "audit.live";

/// This process's file, locked as long as this exists.
#[derive(Debug)]
pub(super) struct Live {
    handles: Arc<Handles>,
    mark: Option<u64>,
    unsynced: bool,
}

/// The part of it that the synchronising thread uses while others append.
#[derive(Debug)]
pub(super) struct Handles {
    folder: OwnedFd,
    file: File,
    name: String,
    path: PathBuf,
}

impl Live {
    /// Makes the file. The caller holds the log's lock, so nobody sees the file before it is locked.
    pub(super) fn create(files: &Files, process: &str) -> Result<Self, AuditError> {
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
        let handles = Arc::new(Handles { folder, file, name: process.to_owned(), path });
        handles.write_mark(None)?;
        Ok(Self { handles, mark: None, unsynced: true })
    }

    /// Makes sure that the mark is not behind a `begin` that is about to be written at this offset.
    pub(super) fn cover(&mut self, offset: u64) -> Result<(), AuditError> {
        if self.mark.is_none() {
            self.handles.write_mark(Some(offset))?;
            self.mark = Some(offset);
            self.unsynced = true;
        }
        Ok(())
    }

    /// Moves the mark on, or takes it away where no call is open: see [`Live`] for when that is right.
    pub(super) fn settle(&mut self, first_open: Option<u64>) {
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
            // The old mark is as right as before, and only costs time.
            Err(error) => tracing::warn!(%error, "the audit log's mark was not moved"),
        }
    }

    /// The handles, if something of the file must still reach the disk. Whoever takes them does that.
    pub(super) fn take_unsynced(&mut self) -> Option<Arc<Handles>> {
        std::mem::take(&mut self.unsynced).then(|| Arc::clone(&self.handles))
    }

    /// Says that this process left no call open.
    pub(super) fn remove(self) -> Result<(), AuditError> {
        self.handles.remove()
    }
}

impl Handles {
    /// Brings file and name to the disk. Done before the rows that the mark covers, so that these are not
    /// there without it after a power loss.
    pub(super) fn sync(&self) -> Result<(), Errno> {
        fdatasync(&self.file)?;
        fsync(&self.folder)
    }

    fn write_mark(&self, mark: Option<u64>) -> Result<(), AuditError> {
        let text = match mark {
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

impl Drop for Handles {
    fn drop(&mut self) {
        // Closing would not do: a child that another thread is just starting has a copy of the descriptor
        // until its `exec`, and the lock would last as long.
        let _ = flock(&self.file, FlockOperation::Unlock);
    }
}

/// The file of a process that is gone; ours alone as long as this exists.
#[derive(Debug)]
pub(super) struct Dead {
    handles: Handles,
    /// From where on it may have left calls open; none if it has not.
    pub(super) mark: Option<u64>,
}

impl Dead {
    /// Which process it was.
    pub(super) fn process(&self) -> &str {
        &self.handles.name
    }

    /// Says that its calls are closed.
    pub(super) fn remove(&self) -> Result<(), AuditError> {
        self.handles.remove()
    }
}

/// The processes that died. The caller holds the log's lock, so no two look for them at once.
pub(super) fn dead(files: &Files) -> Result<Vec<Dead>, AuditError> {
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
        // A name that is not UTF-8 is not one of ours.
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
            // Its process ended in order just now.
            Err(Errno::NOENT) => continue,
            Err(errno) => return Err(failed(errno.into())),
        };
        if !file.metadata().map_err(failed)?.is_file() {
            return Err(failed(io::Error::from(io::ErrorKind::InvalidData)));
        }
        if !lock::try_keep(&file).map_err(|errno| failed(errno.into()))? {
            continue;
        }
        let mark = read_mark(&file).map_err(failed)?;
        let folder = folder.try_clone().map_err(failed)?;
        dead.push(Dead { handles: Handles { folder, file, name: name.to_owned(), path }, mark });
    }
    Ok(dead)
}

/// A mark that can't be read, as of a process killed between two system calls, covers the whole log.
fn read_mark(file: &File) -> io::Result<Option<u64>> {
    let mut bytes = [0; NO_MARK.len()];
    let read = file.read_at(&mut bytes, 0)?;
    if bytes == NO_MARK.as_bytes() {
        return Ok(None);
    }
    let text = std::str::from_utf8(&bytes[..read]).unwrap_or_default();
    Ok(Some(text.strip_suffix('\n').and_then(|digits| digits.parse().ok()).unwrap_or(0)))
}

/// How far the oldest open call must have moved before the mark follows, to spare writes.
const MARK_STEP_BYTES: u64 = 64 * 1024;

/// As long as any mark, so that one write replaces the other.
const NO_MARK: &str = "--------------------\n";

const FOLDER: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
