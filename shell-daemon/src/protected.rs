//! Protected paths below a session's mounts: finds them, and those that a command has made or changed.
//!
//! Folders are remembered with their last change, so that the scan after a command reads only those that have
//! changed. All paths are resolved below the mount's handle, and no link is followed: a command may swap one
//! in at any time (TOCTOU race).
//!
//! Git accepts a repository not only in a folder named `.git`: a file of that name can point to one, and a
//! bare repository can have any name. So such a file is protected, and a folder that Git would take for a
//! repository is protected like `.git`.
//!
//! File systems take their times from a slow clock, and two changes within one tick have the same time. A
//! folder that changed so recently is read again after the next command. Reading a file cannot reveal such a
//! change, so a scan that found a fresh file waits for the next tick.
//!
//! Not seen: a change after the scan (by a background job; the next command's scan reports it); a path that
//! is made and removed between two scans; a second change where times are whole seconds (FAT, ext3) or come
//! from another machine; and the contents of folders that this process may not read or that are too many. The
//! report says when such folders exist.
//!
//! A scan is bounded. The command must not choose what falls outside the bounds: folders that are part of a
//! protected path are read first and have a reserved share, then come the others by depth. In a folder that
//! is too large, and in the mount itself, the protected names are looked up one by one. A path that the
//! session's first scan left out and a later scan finds is reported if it or its folder has changed since the
//! session began.

mod budget;
mod mount;
mod names;
mod seen;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use portcullis_confine::PathAccess;
use portcullis_policy::ProtectedPaths;
use rustix::fs::FileType;

use self::{
    budget::{Budget, ScanBounds},
    mount::ScannedMount,
    seen::{TICK, file_time},
};
use crate::{
    SessionSpec, ShellError,
    limits::{PROTECTED_BYTES, PROTECTED_ENTRIES, PROTECTED_REPORTED, PROTECTED_SHARE, PROTECTED_TIME},
    setup::open_mount,
};

/// The result of one scan of the mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedFound {
    /// Protected paths that the command made or changed, as `/MOUNT/PATH`, at most 100; those of repositories
    /// first.
    pub created: Vec<String>,
    /// Whether the scan read everything and reports everything: nothing was unreadable or too much.
    pub complete: bool,
}

/// The protected paths of one session.
#[derive(Debug)]
pub(crate) struct ProtectedScanner {
    patterns: ProtectedPaths,
    mounts: Vec<ScannedMount>,
    bounds: ScanBounds,
}

/// The protected paths for a session's own file tree, as that tree names them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtectedPlaces {
    /// The outermost protected files and folders. They become read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// Folders whose names are part of a protected path, such as `.git`. They must keep their places.
    pub(crate) fixed: Vec<PathBuf>,
}

impl ProtectedScanner {
    /// Scans for existing paths. Without patterns nothing is ever scanned.
    pub(crate) fn new(spec: &SessionSpec) -> Result<Self, ShellError> {
        Self::within(spec, USUAL_BOUNDS)
    }

    fn within(spec: &SessionSpec, bounds: ScanBounds) -> Result<Self, ShellError> {
        let mut this = Self { patterns: spec.protect.clone(), mounts: Vec::new(), bounds };
        if spec.protect.patterns().next().is_none() {
            return Ok(this);
        }
        for mount in spec.mounts.iter().filter(|mount| mount.access == PathAccess::Write) {
            this.mounts.push(ScannedMount::new(mount.name.clone(), open_mount(&mount.path)?));
        }
        this.scan();
        Ok(this)
    }

    /// The existing paths, outermost first, as many as one message takes.
    pub(crate) fn places(&self) -> ProtectedPlaces {
        let mut places = ProtectedPlaces::default();
        let mut bytes = 0;
        for mount in &self.mounts {
            let inside = |path: &Path| Path::new("/").join(&mount.name).join(path);
            let mut fixed = BTreeSet::new();
            let mut last: Option<&Path> = None;
            for (path, found) in &mount.found {
                if !matches!(found.kind, FileType::Directory | FileType::RegularFile)
                    || last.is_some_and(|last| path.starts_with(last))
                {
                    continue;
                }
                last = Some(path);
                let place = inside(path);
                // A path that is not UTF-8 cannot be sent.
                if place.to_str().is_none() {
                    continue;
                }
                let above = mount.named_folders(&self.patterns, path);
                let new = || above.iter().filter(|folder| !fixed.contains(*folder));
                let size = |path: &Path| path.as_os_str().len() + 8;
                bytes += size(&place) + new().map(|folder| size(&inside(folder))).sum::<usize>();
                if bytes > PROTECTED_BYTES {
                    break;
                }
                places.read_only.push(place);
                fixed.extend(above);
            }
            places.fixed.extend(fixed.iter().map(|folder| inside(folder)));
        }
        places
    }

    /// Scans for changes since the last scan.
    pub(crate) fn scan(&mut self) -> ProtectedFound {
        let mut budget = Budget::of(self.bounds);
        let mut created = Vec::new();
        for mount in &mut self.mounts {
            created.extend(mount.scan(&self.patterns, &mut budget));
        }
        // Repositories first, since Git runs programs from them: other paths cannot push them out of the
        // report.
        created
            .sort_by_key(|path: &String| !path.split('/').any(|name| self.patterns.names_repository(name)));
        budget.complete &= created.len() <= PROTECTED_REPORTED;
        created.truncate(PROTECTED_REPORTED);
        self.wait_for_another_time();
        ProtectedFound { created, complete: budget.complete }
    }

    /// Waits until a further change of a found file would get another time than its last one.
    fn wait_for_another_time(&self) {
        let identities =
            self.mounts.iter().flat_map(|mount| mount.found.values()).filter_map(|found| found.identity);
        let Some(last) = identities.map(|identity| identity.changed).max() else { return };
        let begun = Instant::now();
        let tick = Duration::from_nanos(TICK.unsigned_abs());
        // At most one tick: a time far in the future is from before the clock was set back.
        while file_time() <= last && begun.elapsed() < tick {
            std::thread::sleep(PAUSE);
        }
    }
}

const USUAL_BOUNDS: ScanBounds =
    ScanBounds { entries: PROTECTED_ENTRIES, share: PROTECTED_SHARE, time: PROTECTED_TIME };

/// Between two reads of that clock, which ticks every 1 to 10 ms.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
