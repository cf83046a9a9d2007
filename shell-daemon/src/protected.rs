//! Protected paths below a session's mounts: which there are, and which a command has made or changed.
//!
//! Folders are remembered with the time of their last change, so that a look after a command reads only those
//! that have changed. Everything goes by the handle of the mount, and no link is followed: a command may swap
//! one at any time.
//!
//! Git is led to a repository not by the name `.git` alone: by a file of that name, and in a bare repository's own
//! folder. So such a file is protected, and in what Git would take for a repository the same as in `.git`.
//!
//! The clocks of files tick slowly, and two changes within a tick have the same time. A folder that was changed so
//! shortly before is read once more after the next command; a file tells nothing by being read, so a look that found
//! a fresh one ends with the next tick.
//!
//! Not seen: what is changed after the look (by a background job; the next command's look tells it), what is
//! made and removed again in between, a second change where times are whole seconds (FAT, ext3) or another
//! machine's, and what lies in folders that this process may not read or that are too many. That there are such
//! folders is told.
//!
//! A look has an end, however much there is to be looked at. So what is left out of it is not for the command to
//! choose: folders that are part of a protected path are read first and have a share of their own, then those that lie
//! less deep; and of a folder that is too large, and of the mount itself, the protected names are asked for by
//! themselves. What the session's first look leaves out and a later one finds is told where it, or its folder, has
//! changed since the session began.

mod budget;
mod mount;
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
    budget::{Bounds, Budget},
    mount::Mount,
    seen::{TICK, file_time},
};
use crate::{
    SessionSpec, ShellError,
    limits::{PROTECTED_BYTES, PROTECTED_ENTRIES, PROTECTED_SHARE, PROTECTED_TIME, PROTECTED_TOLD},
    setup::open_mount,
};

/// What a look at the mounts found.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedFound {
    /// Protected paths that the command made or changed, as `/MOUNT/PATH`, at most 100; those of repositories first.
    pub created: Vec<String>,
    /// Whether everything was looked at and told: there are not too many files, and none that cannot be read.
    pub complete: bool,
}

/// The protected paths of one session.
#[derive(Debug)]
pub(crate) struct Protected {
    patterns: ProtectedPaths,
    mounts: Vec<Mount>,
    bounds: Bounds,
}

/// What a file tree of the session's own does for protected paths, as paths in that tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtectedPlaces {
    /// The outermost protected files and folders, which become read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// The folders whose names are part of a protected path, such as `.git`: they are to stay where they are.
    pub(crate) fixed: Vec<PathBuf>,
}

impl Protected {
    /// Looks for what is there. Without patterns nothing is looked at, now or later.
    pub(crate) fn new(spec: &SessionSpec) -> Result<Self, ShellError> {
        Self::within(spec, USUAL_BOUNDS)
    }

    fn within(spec: &SessionSpec, bounds: Bounds) -> Result<Self, ShellError> {
        let mut this = Self { patterns: spec.protect.clone(), mounts: Vec::new(), bounds };
        if spec.protect.patterns().next().is_none() {
            return Ok(this);
        }
        for mount in spec.mounts.iter().filter(|mount| mount.access == PathAccess::Write) {
            this.mounts.push(Mount::new(mount.name.clone(), open_mount(&mount.path)?));
        }
        this.look();
        Ok(this)
    }

    /// What is there, outermost first, and no more than one message takes.
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
                // A path that is no text cannot be told.
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

    /// Looks what has changed since the last look.
    pub(crate) fn look(&mut self) -> ProtectedFound {
        let mut budget = Budget::of(self.bounds);
        let mut created = Vec::new();
        for mount in &mut self.mounts {
            created.extend(mount.look(&self.patterns, &mut budget));
        }
        // Those by which Git runs something stand first, however many others were made to hide them.
        created
            .sort_by_key(|path: &String| !path.split('/').any(|name| self.patterns.names_repository(name)));
        budget.complete &= created.len() <= PROTECTED_TOLD;
        created.truncate(PROTECTED_TOLD);
        self.wait_for_another_time();
        ProtectedFound { created, complete: budget.complete }
    }

    /// Waits until a further change of a file that was found would have another time than its last one.
    fn wait_for_another_time(&self) {
        let identities =
            self.mounts.iter().flat_map(|mount| mount.found.values()).filter_map(|found| found.identity);
        let Some(last) = identities.map(|identity| identity.changed).max() else { return };
        let begun = Instant::now();
        let tick = Duration::from_nanos(TICK.unsigned_abs());
        // A time that is far ahead is of a clock that was set back since: it will not be reached soon.
        while file_time() <= last && begun.elapsed() < tick {
            std::thread::sleep(PAUSE);
        }
    }
}

const USUAL_BOUNDS: Bounds =
    Bounds { entries: PROTECTED_ENTRIES, share: PROTECTED_SHARE, time: PROTECTED_TIME };

/// Between two looks at that clock, which ticks every 1 to 10 ms.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
