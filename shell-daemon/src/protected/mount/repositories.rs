//! Finds the repositories of a mount. A folder is a repository because of its contents, whatever its name.
//! Git's files in it are protected.

use std::{
    ffi::OsString,
    os::unix::ffi::OsStringExt as _,
    path::{Path, PathBuf},
};

use portcullis_policy::{ProtectedPaths, RepositoryMarks};
use rustix::fs::FileType;

use super::{MountScan, ScannedMount, is_gone};
use crate::protected::names::{RepositoryRoots, is_protected};

impl ScannedMount {
    /// Looks up whether a folder whose names are not all read is a repository. If so, looks up its protected names.
    pub(super) fn probe_for_marks(&mut self, folder: &Path, may_predate: bool, scan: &mut MountScan<'_>) {
        let mut marks = RepositoryMarks::default();
        for name in RepositoryMarks::NAMES {
            if self.stat(&folder.join(name), scan).is_some() {
                marks.record_name(name.as_bytes());
            }
        }
        if !marks.is_repository() {
            return;
        }
        self.repositories.insert(folder.to_owned());
        for pattern in scan.patterns.patterns() {
            if let Some((_, below)) =
                pattern.split_once('/').filter(|(name, _)| scan.patterns.names_repository(name))
            {
                self.probe_for(below, folder, may_predate, scan);
            }
        }
    }

    /// The repositories among a folder and the folders above it.
    pub(super) fn roots_above(&self, folder: &Path) -> RepositoryRoots {
        if self.repositories.is_empty() {
            return RepositoryRoots(Vec::new());
        }
        let depth = folder.iter().count();
        let is_repository = |(_, above): &(usize, &Path)| self.repositories.contains(*above);
        RepositoryRoots(
            folder.ancestors().enumerate().filter(is_repository).map(|(up, _)| depth - up).collect(),
        )
    }

    /// Records whether a folder is a repository. The contents of a new repository are scanned again. All of them are
    /// new, unless the folder may be older than the session.
    pub(super) fn note_repository(
        &mut self,
        folder: &Path,
        marks: RepositoryMarks,
        may_predate: bool,
        scan: &mut MountScan<'_>,
    ) {
        if !marks.is_repository() {
            if self.repositories.remove(folder) {
                self.forget_below(folder, scan.patterns);
            }
            return;
        }
        if !self.repositories.insert(folder.to_owned()) {
            return;
        }
        if !may_predate {
            let below = self.folders.iter_mut().filter(|(path, _)| path.starts_with(folder));
            below.for_each(|(_, stamp)| stamp.may_predate = false);
        }
        let entries = match self.open(folder) {
            Ok((entries, _)) => entries,
            Err(errno) => {
                scan.budget.complete &= is_gone(errno);
                return;
            }
        };
        let roots = self.roots_above(folder);
        for entry in entries.map_while(Result::ok) {
            if scan.budget.is_over() {
                // The repository is not finished, so the next scan repeats it.
                self.repositories.remove(folder);
                self.leave_out(folder.to_owned(), true);
                return;
            }
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = folder.join(OsString::from_vec(name.to_vec()));
            let Some(stat) = self.stat(&path, scan) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !is_protected(scan.patterns, &path, kind, &roots) {
                continue;
            }
            self.record_found(path.clone(), &stat, may_predate, scan);
            if kind == FileType::Directory && self.folders.contains_key(&path) {
                scan.to_read.add(path, true);
            }
        }
    }

    /// Forgets paths that were protected only because this folder was a repository.
    pub(super) fn forget_below(&mut self, folder: &Path, patterns: &ProtectedPaths) {
        let mut found = std::mem::take(&mut self.fingerprints);
        // `found` is sorted, so paths of one folder are neighbours. Compute `roots` once for each folder.
        let mut last: Option<(PathBuf, RepositoryRoots)> = None;
        found.retain(|path, found| {
            let Some(parent) = path.parent().filter(|_| path.starts_with(folder)) else { return true };
            if last.as_ref().is_none_or(|(last, _)| last != parent) {
                last = Some((parent.to_owned(), self.roots_above(parent)));
            }
            last.as_ref().is_some_and(|(_, roots)| is_protected(patterns, path, found.kind, roots))
        });
        self.fingerprints = found;
    }
}
