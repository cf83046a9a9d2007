//! Finds the protected paths below a session's mounts, and the protected paths that a command has made or changed.
//!
//! Folders are remembered with their last change, so that the scan after a command reads only folders that have
//! changed. A command may put a link into a path at any time (TOCTOU race), so folders and files are opened below the
//! mount's handle, without following links. Only a `stat` can pass a link in the middle of a path. At worst its result
//! is a wrong report.
//!
//! Git accepts a repository not only in a folder named `.git`: a file of that name can point to a repository, and a
//! bare repository can have any name. Such a file is therefore protected, and a folder that Git accepts as a repository
//! is protected like `.git`.
//!
//! File systems take their times from a slow clock, so two changes within one tick have the same time. A folder that
//! changed so recently is read again after the next command. After finding a file that changed so recently, a scan
//! waits for the next tick, so that any later change gets another time.
//!
//! A scan does not see:
//!
//! - a change after the scan, by a background job (the next command's scan reports it),
//! - a path that is made and removed between two scans,
//! - a second change where times are whole seconds (FAT, ext3) or come from another machine,
//! - the contents of folders that this process may not read, or that are too many. The report says when such folders
//!   exist.
//!
//! A scan has limits, and a command must not be able to choose which paths the limits exclude. Folders that are part of
//! a protected path are read first and have a reserved share. The other folders follow by depth. In a folder that is
//! too large, and in the mount itself, the protected names are looked up one by one. A path that the session's first
//! scan left out and a later scan finds is reported if the path or its folder has changed since the session began.

mod budget;
mod fingerprint;
mod mount;
mod names;

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use portcullis_confine::PathAccess;
use portcullis_policy::ProtectedPaths;
use rustix::fs::FileType;

pub(crate) use self::mount::open_below;
use self::{
    budget::{ScanBounds, ScanBudget},
    fingerprint::{TICK, file_time},
    mount::ScannedMount,
};
use crate::{
    SessionSpec, ShellError,
    limits::{
        MAX_PROTECTED_BYTES, MAX_PROTECTED_ENTRIES, MAX_REPORTED_PROTECTED, PROTECTED_RESERVE_ENTRIES,
        PROTECTED_SCAN_TIMEOUT,
    },
    setup::open_mount,
};

/// The result of one scan of the mounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ProtectedReport {
    /// Protected paths that the command made or changed, as `/MOUNT/PATH`. There are at most 100, and paths of
    /// repositories come first.
    pub changed_paths: Vec<String>,
    /// Whether the scan read and reports everything: nothing was unreadable, and no limit was reached.
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
pub(crate) struct SessionProtectedPaths {
    /// The outermost protected files and folders. They become read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// Folders whose names are part of a protected path, such as `.git`. Commands cannot rename or replace them.
    pub(crate) fixed: Vec<PathBuf>,
}

impl ProtectedScanner {
    /// Scans for existing paths. Without patterns nothing is ever scanned.
    pub(crate) fn new(spec: &SessionSpec) -> Result<Self, ShellError> {
        Self::with_bounds(spec, USUAL_BOUNDS)
    }

    fn with_bounds(spec: &SessionSpec, bounds: ScanBounds) -> Result<Self, ShellError> {
        let mut scanner = Self { patterns: spec.protect.clone(), mounts: Vec::new(), bounds };
        if spec.protect.patterns().next().is_none() {
            return Ok(scanner);
        }
        for mount in spec.mounts.iter().filter(|mount| mount.access == PathAccess::Write) {
            scanner.mounts.push(ScannedMount::new(mount.name.clone(), open_mount(&mount.path)?));
        }
        scanner.scan();
        Ok(scanner)
    }

    /// The existing paths, the outermost first, as many as fit into one message.
    pub(crate) fn session_paths(&self) -> SessionProtectedPaths {
        let mut paths = SessionProtectedPaths::default();
        let mut bytes = 0;
        for mount in &self.mounts {
            let session_path = |path: &Path| Path::new("/").join(&mount.name).join(path);
            let mut fixed = BTreeSet::new();
            let mut last_path: Option<&Path> = None;
            for (path, found) in &mount.fingerprints {
                if !matches!(found.kind, FileType::Directory | FileType::RegularFile)
                    || last_path.is_some_and(|last_path| path.starts_with(last_path))
                {
                    continue;
                }
                last_path = Some(path);
                let path_in_session = session_path(path);
                // A path that is not UTF-8 cannot be sent.
                if path_in_session.to_str().is_none() {
                    continue;
                }
                let fixed_folders = mount.named_folders(&self.patterns, path);
                let new_folders = || fixed_folders.iter().filter(|folder| !fixed.contains(*folder));
                let size = |path: &Path| path.as_os_str().len() + 8;
                bytes += size(&path_in_session)
                    + new_folders().map(|folder| size(&session_path(folder))).sum::<usize>();
                if bytes > MAX_PROTECTED_BYTES {
                    break;
                }
                paths.read_only.push(path_in_session);
                fixed.extend(fixed_folders);
            }
            paths.fixed.extend(fixed.iter().map(|folder| session_path(folder)));
        }
        paths
    }

    /// Scans for changes since the last scan.
    pub(crate) fn scan(&mut self) -> ProtectedReport {
        let mut budget = ScanBudget::new(self.bounds);
        let mut changed = Vec::new();
        for mount in &mut self.mounts {
            changed.extend(mount.scan(&self.patterns, &mut budget));
        }
        // Repositories come first, because Git runs programs from them: other paths must not push them out of the
        // report.
        changed
            .sort_by_key(|path: &String| !path.split('/').any(|name| self.patterns.names_repository(name)));
        budget.complete &= changed.len() <= MAX_REPORTED_PROTECTED;
        changed.truncate(MAX_REPORTED_PROTECTED);
        self.wait_for_next_timestamp();
        ProtectedReport { changed_paths: changed, complete: budget.complete }
    }

    /// Waits until a further change of a found file would get a new time.
    fn wait_for_next_timestamp(&self) {
        let identities = self
            .mounts
            .iter()
            .flat_map(|mount| mount.fingerprints.values())
            .filter_map(|found| found.identity);
        let Some(latest_change) = identities.map(|identity| identity.changed_at).max() else { return };
        let begun = Instant::now();
        let tick = Duration::from_nanos(TICK.unsigned_abs());
        // Wait at most one tick: a time far in the future is from before the clock was set back.
        while file_time() <= latest_change && begun.elapsed() < tick {
            std::thread::sleep(SCAN_PAUSE);
        }
    }
}

const USUAL_BOUNDS: ScanBounds = ScanBounds {
    entries: MAX_PROTECTED_ENTRIES,
    reserve_entries: PROTECTED_RESERVE_ENTRIES,
    time: PROTECTED_SCAN_TIMEOUT,
};

/// The pause between two reads of the file systems' clock, which ticks every 1 to 10 ms.
const SCAN_PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
