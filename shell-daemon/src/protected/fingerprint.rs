//! Detects whether a file or folder has changed between two scans.

use std::{
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::{self, Read},
    os::fd::OwnedFd,
    path::Path,
};

use rustix::{
    fs::{FileType, OFlags, Stat},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use super::{
    budget::ScanBudget,
    mount::{is_gone, open_below},
};

/// The metadata that identifies a file's state. `changed_at` is the inode's change time, which no program can
/// set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FileState {
    pub(super) inode: (u64, u64),
    pub(super) modified: (i64, i64),
    pub(super) changed_at: (i64, i64),
}

/// The state of a folder when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FolderStamp {
    /// `None` if the folder was not read.
    pub(super) state: Option<FileState>,
    /// Whether the folder is part of a protected path.
    pub(super) is_protected_part: bool,
    /// Whether the folder changed so shortly before the scan that a further change could have the same time.
    pub(super) is_fresh: bool,
    /// Whether the first scan left the folder out because of a limit. Its contents may then be older than the session.
    pub(super) may_predate: bool,
    /// The folder's device and inode when the first scan left it out.
    pub(super) previous_inode: Option<(u64, u64)>,
}

impl FolderStamp {
    /// The stamp of a folder that still has to be read.
    pub(super) fn unread(
        is_protected_part: bool,
        may_predate: bool,
        previous_inode: Option<(u64, u64)>,
    ) -> Self {
        Self { state: None, is_protected_part, is_fresh: true, may_predate, previous_inode }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PathFingerprint {
    pub(super) kind: FileType,
    /// `None` for a folder, whose contents are found separately.
    pub(super) identity: Option<FileState>,
    pub(super) inode: (u64, u64),
    /// A hash of a regular file's contents, if the file could be read.
    content: Option<u64>,
}

/// Hashes the contents of files, because a program can write to a mapped file without changing the file's time. On
/// file systems in memory, such a write never changes the time. On other file systems, the first write changes the time,
/// and later writes do not until the kernel has written the page to the disk, about half a minute later (`page_mkwrite`
/// in the kernel's `Documentation/filesystems/locking.rst`).
#[derive(Debug, Default)]
pub(super) struct ContentHasher {
    /// The hasher has a random key, so that no command can construct a hash collision.
    hasher: RandomState,
    buffer: Vec<u8>,
}

impl FileState {
    pub(super) fn from_stat(stat: &Stat) -> Self {
        let seconds = |seconds: i64, nanoseconds| (seconds, i64::try_from(nanoseconds).unwrap_or_default());
        Self {
            inode: (stat.st_dev, stat.st_ino),
            modified: seconds(stat.st_mtime, stat.st_mtime_nsec),
            changed_at: seconds(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// Whether the last change was so recent, or even later than `now`, that a further change could have the
    /// same time.
    pub(super) fn is_after(self, (seconds, nanoseconds): (i64, i64)) -> bool {
        let shortly_before = if nanoseconds >= TICK {
            (seconds, nanoseconds - TICK)
        } else {
            (seconds - 1, nanoseconds + 1_000_000_000 - TICK)
        };
        self.changed_at.max(self.modified) >= shortly_before
    }
}

impl PathFingerprint {
    pub(super) fn from_stat(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let identity = FileState::from_stat(stat);
        let identity_of_file = (kind != FileType::Directory).then_some(identity);
        Self { kind, identity: identity_of_file, inode: identity.inode, content: None }
    }

    /// Takes the content's hash from the state that was found before, if the file is unchanged and its content is
    /// unknown now.
    pub(super) fn with_content_of(mut self, before: Option<Self>) -> Self {
        if let Some(before) = before.filter(|before| before.is_same(self)) {
            self.content = self.content.or(before.content);
        }
        self
    }

    /// Whether the content is known now but was not before, so that it cannot be compared.
    pub(super) fn is_first_content(self, before: Self) -> bool {
        self.content.is_some() && before.content.is_none()
    }

    /// Whether the file is unchanged. Contents are compared only if both are known.
    pub(super) fn is_same(self, other: Self) -> bool {
        let contents = self.content.zip(other.content);
        (self.kind, self.identity, self.inode) == (other.kind, other.identity, other.inode)
            && contents.is_none_or(|(one, other)| one == other)
    }
}

impl ContentHasher {
    /// Adds the content of a regular file below `mount`, within the budget.
    pub(super) fn add(
        &mut self,
        found: &mut PathFingerprint,
        stat: &Stat,
        mount: &OwnedFd,
        path: &Path,
        budget: &mut ScanBudget,
    ) {
        if found.kind == FileType::RegularFile {
            found.content = self.hash(stat, mount, path, budget);
        }
    }

    /// The hash of a file's contents. `None` if the file could not be read, or was replaced, which the next
    /// scan detects.
    fn hash(&mut self, found: &Stat, mount: &OwnedFd, path: &Path, budget: &mut ScanBudget) -> Option<u64> {
        // `NONBLOCK`, because a FIFO may have replaced the file.
        let read = open_below(mount, path, OFlags::NONBLOCK).and_then(|file| {
            let stat = rustix::fs::fstat(&file)?;
            let is_another = (stat.st_dev, stat.st_ino) != (found.st_dev, found.st_ino);
            if is_another || !budget.take_content(stat.st_size.unsigned_abs()) {
                return Ok(None);
            }
            self.hash_content(File::from(file).take(stat.st_size.unsigned_abs())).map(Some)
        });
        read.unwrap_or_else(|errno| {
            // Commands run as this user or as the mount's owner. They can never have mapped an unreadable file of
            // another user. They may have mapped their own file before they made it unreadable.
            let owner = rustix::fs::fstat(mount).map(|stat| stat.st_uid);
            let is_foreign = found.st_uid != rustix::process::geteuid().as_raw() && owner != Ok(found.st_uid);
            budget.complete &= is_gone(errno) || (errno == Errno::ACCESS && is_foreign);
            None
        })
    }

    fn hash_content(&mut self, mut file: impl Read) -> Result<u64, Errno> {
        self.buffer.resize(READ_BUFFER_BYTES, 0);
        let mut hasher = self.hasher.build_hasher();
        loop {
            match file.read(&mut self.buffer) {
                Ok(0) => return Ok(hasher.finish()),
                Ok(count) => hasher.write(&self.buffer[..count]),
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
    }
}

/// Bytes of one read.
const READ_BUFFER_BYTES: usize = 64 << 10;

/// Returns the time that the kernel would record for a change made now.
pub(super) fn file_time() -> (i64, i64) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// A time longer than any tick of a file system's clock, in nanoseconds.
pub(super) const TICK: i64 = 50_000_000;
