//! Telling one state of a file from another.

use std::{
    collections::HashMap,
    fs::File,
    hash::{BuildHasher as _, Hasher as _, RandomState},
    io::Read as _,
    os::fd::{AsFd, OwnedFd},
    path::Path,
};

use rustix::{
    fs::{FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use super::budget::Budget;

/// A state of a file. `changed` is the inode's change time, which no program can set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) place: (u64, u64),
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) kind: FileType,
    /// `None` for a folder: its contents are found by themselves.
    pub(super) identity: Option<Identity>,
    pub(super) place: (u64, u64),
    /// A hash of what is in it, where a change may leave the times as they are and it could be read.
    content: Option<u64>,
}

/// Compares the contents of files on file systems in memory. They record no time for a write through a mapping
/// that was read before: on tmpfs and ramfs no fault tells them (`page_mkwrite` is missing in `mm/shmem.c` and
/// `fs/ramfs/file-mmu.c`).
#[derive(Debug, Default)]
pub(super) struct Contents {
    /// With a key of this process, so that no command can make two contents of one hash.
    hasher: RandomState,
    /// Whether the file system of a device is, or may be, in memory.
    devices: HashMap<u64, bool>,
}

impl Identity {
    pub(super) fn of(stat: &Stat) -> Self {
        let seconds = |seconds: i64, nanoseconds| (seconds, i64::try_from(nanoseconds).unwrap_or_default());
        Self {
            place: (stat.st_dev, stat.st_ino),
            modified: seconds(stat.st_mtime, stat.st_mtime_nsec),
            changed: seconds(stat.st_ctime, stat.st_ctime_nsec),
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
        self.changed.max(self.modified) >= shortly_before
    }
}

impl Found {
    pub(super) fn of(stat: &Stat) -> Self {
        let kind = FileType::from_raw_mode(stat.st_mode);
        let identity = Identity::of(stat);
        let identity_of_file = (kind != FileType::Directory).then_some(identity);
        Self { kind, identity: identity_of_file, place: identity.place, content: None }
    }

    /// Whether both are one state. A content that one of them does not have is not compared.
    pub(super) fn is_same(self, other: Self) -> bool {
        let contents = self.content.zip(other.content);
        (self.kind, self.identity, self.place) == (other.kind, other.identity, other.place)
            && contents.is_none_or(|(one, other)| one == other)
    }
}

impl Contents {
    /// Adds the content of a regular file below `mount` where it has to be compared, within the budget.
    pub(super) fn add(&mut self, found: &mut Found, mount: impl AsFd, path: &Path, budget: &mut Budget) {
        if found.kind == FileType::RegularFile {
            found.content = self.hash(found.place, mount, path, budget).unwrap_or_else(|errno| {
                // What this user may not read, a command of this user cannot map.
                budget.complete &= super::mount::is_gone(errno) || errno == Errno::ACCESS;
                None
            });
        }
    }

    fn hash(
        &mut self,
        place: (u64, u64),
        mount: impl AsFd,
        path: &Path,
        budget: &mut Budget,
    ) -> Result<Option<u64>, Errno> {
        let open = |flags: OFlags| -> Result<OwnedFd, Errno> {
            let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
            let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::openat2(mount.as_fd(), path, flags, Mode::empty(), how)
        };
        let in_memory = match self.devices.get(&place.0) {
            Some(known) => *known,
            None => {
                let asked = open(OFlags::PATH)?;
                if rustix::fs::fstat(&asked)?.st_dev != place.0 {
                    return Ok(None);
                }
                let kind = rustix::fs::fstatfs(&asked)?.f_type;
                let in_memory = u32::try_from(kind).is_ok_and(|kind| IN_MEMORY.contains(&kind));
                *self.devices.entry(place.0).or_insert(in_memory)
            }
        };
        if !in_memory {
            return Ok(None);
        }
        // Not blocking, in case a pipe has taken the file's place.
        let file = File::from(open(OFlags::RDONLY | OFlags::NONBLOCK)?);
        let stat = rustix::fs::fstat(&file)?;
        let size = stat.st_size.unsigned_abs();
        // Another file in its place is seen by the next scan.
        if (stat.st_dev, stat.st_ino) != place || !budget.take_content(size) {
            return Ok(None);
        }
        let mut hasher = self.hasher.build_hasher();
        let (mut file, mut bytes) = (file.take(size), vec![0; PIECE]);
        loop {
            match file.read(&mut bytes) {
                Ok(0) => return Ok(Some(hasher.finish())),
                Ok(count) => hasher.write(&bytes[..count]),
                Err(error) => return Err(Errno::from_io_error(&error).unwrap_or(Errno::IO)),
            }
        }
    }
}

/// Tmpfs, ramfs, and overlays, which may have their files on either (`include/uapi/linux/magic.h`).
const IN_MEMORY: [u32; 3] = [0x0102_1994, 0x8584_58f6, 0x794c_7630];

/// Bytes of one read.
const PIECE: usize = 64 << 10;

/// The time that the kernel would record for a change made now.
pub(super) fn file_time() -> (i64, i64) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// Longer than any tick of a file system's clock, in nanoseconds.
pub(super) const TICK: i64 = 50_000_000;
