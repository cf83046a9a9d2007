//! Telling one state of a file from another.

use rustix::{
    fs::{FileType, Stat},
    time::{ClockId, clock_gettime},
};

/// A state of a file. `changed` is the inode's change time, which no program can set back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) place: (u64, u64),
    pub(super) modified: (i64, i64),
    pub(super) changed: (i64, i64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Found {
    pub(super) kind: FileType,
    /// `None` for a folder: its contents are found by themselves.
    pub(super) identity: Option<Identity>,
    pub(super) place: (u64, u64),
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
        Self { kind, identity: (kind != FileType::Directory).then_some(identity), place: identity.place }
    }
}

/// The time that the kernel would record for a change made now.
pub(super) fn file_time() -> (i64, i64) {
    let now = clock_gettime(ClockId::RealtimeCoarse);
    (now.tv_sec, now.tv_nsec)
}

/// Longer than any tick of a file system's clock, in nanoseconds.
pub(super) const TICK: i64 = 50_000_000;
