//! Finds the protected paths of one mount, and their changes since the last scan.

mod repositories;

use std::{
    collections::{BTreeMap, BTreeSet, HashMap, HashSet},
    ffi::OsString,
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
};

use portcullis_policy::{ProtectedPaths, RepositoryMarks};
use rustix::{
    fs::{AtFlags, Dir, DirEntry, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use super::{
    budget::{FolderQueue, ScanBudget},
    fingerprint::{ContentHasher, FileState, FolderStamp, PathFingerprint, file_time},
    names::{PathParts, RepositoryRoots, is_protected},
};
use crate::limits::{MAX_PROTECTED_DEPTH, MAX_PROTECTED_FOLDERS, MAX_PROTECTED_PATHS};

#[derive(Debug)]
pub(super) struct ScannedMount {
    pub(super) name: String,
    handle: OwnedFd,
    /// Known folders by path below the mount. The mount itself is the empty path.
    folders: HashMap<PathBuf, FolderStamp>,
    /// The protected paths that exist.
    pub(super) fingerprints: BTreeMap<PathBuf, PathFingerprint>,
    /// The folders that Git would accept as repositories, whatever their names.
    repositories: HashSet<PathBuf>,
    /// The time before the first scan, on the file system's clock.
    scan_started_at: (i64, i64),
    /// Whether the first scan is not finished yet.
    is_first: bool,
    contents: ContentHasher,
}

struct MountScan<'a> {
    patterns: &'a ProtectedPaths,
    budget: &'a mut ScanBudget,
    /// The time when the scan began.
    started_at: (i64, i64),
    to_read: FolderQueue,
    found_paths: HashSet<PathBuf>,
    /// Paths made or changed since the last scan.
    changed_paths: BTreeSet<PathBuf>,
}

impl ScannedMount {
    pub(super) fn new(name: String, handle: OwnedFd) -> Self {
        Self {
            name,
            handle,
            folders: HashMap::new(),
            fingerprints: BTreeMap::new(),
            repositories: HashSet::new(),
            scan_started_at: file_time(),
            is_first: true,
            contents: ContentHasher::default(),
        }
    }

    /// Scans the mount, and returns the protected paths that were made or changed since the last scan.
    pub(super) fn scan(&mut self, patterns: &ProtectedPaths, budget: &mut ScanBudget) -> Vec<String> {
        let now = clock_gettime(ClockId::Realtime);
        let now = (now.tv_sec, now.tv_nsec);
        let (to_read, found, changed) = (FolderQueue::default(), HashSet::new(), BTreeSet::new());
        let mut scan = MountScan {
            patterns,
            budget,
            started_at: now,
            to_read,
            found_paths: found,
            changed_paths: changed,
        };
        if self.folders.is_empty() {
            scan.to_read.add(PathBuf::new(), false);
        }
        // If `fingerprints` is full, further paths are not recorded, so the scan is incomplete.
        scan.budget.complete &= self.fingerprints.len() < MAX_PROTECTED_PATHS;
        self.recheck(&mut scan);
        let mut folders = std::mem::take(&mut self.folders);
        // Folders of protected paths come first, because the time may end before the others are checked.
        for pass in [true, false] {
            folders.retain(|path, stamp| {
                // When the time is used up, keep the folder for the next scan.
                if stamp.is_protected_part != pass || scan.budget.is_over() {
                    return true;
                }
                match self.handle_stat(path) {
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                        if stamp.is_fresh || stamp.state != Some(FileState::from_stat(&stat)) {
                            scan.to_read.add(path.clone(), stamp.is_protected_part);
                        }
                        true
                    }
                    Ok(_) => false,
                    Err(errno) => {
                        scan.budget.complete &= is_gone(errno);
                        !is_gone(errno)
                    }
                }
            });
        }
        self.folders = folders;
        self.repositories.retain(|folder| self.folders.contains_key(folder));
        while let Some((folder, is_protected_part)) = scan.to_read.next() {
            if scan.budget.is_over() {
                self.leave_out(folder, is_protected_part);
            } else {
                self.read(&folder, is_protected_part, &mut scan);
            }
        }
        if scan.budget.is_over() {
            self.scan_root(&mut scan);
        }
        self.is_first = false;
        scan.changed_paths
            .iter()
            .map(|path| Path::new("/").join(&self.name).join(path).to_string_lossy().into_owned())
            .collect()
    }

    /// Looks up the protected names directly below the mount when the time is used up, because most mounts
    /// have them there.
    fn scan_root(&mut self, scan: &mut MountScan<'_>) {
        let may_predate = self.folders.get(Path::new("")).is_none_or(|stamp| stamp.may_predate);
        self.probe_for_marks(Path::new(""), may_predate, scan);
        for pattern in scan.patterns.patterns() {
            self.probe_for(pattern, Path::new(""), may_predate, scan);
        }
        while let Some((folder, is_protected_part)) = scan.to_read.next() {
            self.leave_out(folder, is_protected_part);
        }
    }

    /// Checks the paths that were found before. A path may be gone, or may have changed without a change of its folder.
    fn recheck(&mut self, scan: &mut MountScan<'_>) {
        let paths: Vec<PathBuf> = self.fingerprints.keys().cloned().collect();
        for path in paths {
            if scan.budget.is_over() {
                return;
            }
            match self.handle_stat(&path) {
                Ok(stat) => self.record_found(path, &stat, false, scan),
                Err(errno) => {
                    scan.budget.complete &= is_gone(errno);
                    self.fingerprints.remove(&path);
                }
            }
        }
    }

    /// Marks a folder that this scan did not finish because of a limit, so that the next scan reads it.
    fn leave_out(&mut self, folder: PathBuf, is_protected_part: bool) {
        let before = self.folders.get(&folder).filter(|stamp| stamp.may_predate);
        let previous_inode = match before {
            Some(stamp) => stamp.previous_inode,
            None if self.is_first => {
                self.handle_stat(&folder).ok().map(|stat| FileState::from_stat(&stat).inode)
            }
            None => None,
        };
        let may_predate = before.is_some() || self.is_first;
        self.folders.insert(folder, FolderStamp::unread(is_protected_part, may_predate, previous_inode));
    }

    /// Remembers a folder that could not be read. Any path that a later scan finds in it is new.
    fn note_unreadable(&mut self, folder: PathBuf, is_protected_part: bool) {
        self.folders.insert(folder, FolderStamp::unread(is_protected_part, false, None));
    }

    /// Looks up the protected names, as the policy spells them, in a folder whose names are not all read.
    fn probe(&mut self, folder: &Path, may_predate: bool, scan: &mut MountScan<'_>) {
        self.probe_for_marks(folder, may_predate, scan);
        for pattern in scan.patterns.patterns() {
            if scan.budget.is_over() {
                return;
            }
            self.probe_for(pattern, folder, may_predate, scan);
        }
    }

    /// Looks up one protected path below a folder, name by name.
    fn probe_for(&mut self, pattern: &str, folder: &Path, mut may_predate: bool, scan: &mut MountScan<'_>) {
        let mut path = folder.to_owned();
        for part in pattern.split('/') {
            let roots = self.roots_above(&path);
            path.push(part);
            let Some(stat) = self.stat(&path, scan) else { break };
            // The contents of a folder that was moved here are new here.
            may_predate &= self.was_there(&stat);
            let kind = FileType::from_raw_mode(stat.st_mode);
            if is_protected(scan.patterns, &path, kind, &roots) {
                self.record_found(path.clone(), &stat, may_predate, scan);
            }
            if kind == FileType::Directory && !self.folders.contains_key(&path) {
                scan.to_read.add(path.clone(), true);
            }
        }
    }

    /// Reads the names of one folder, records the protected ones, and adds the folders below it to the scan.
    fn read(&mut self, folder: &Path, is_protected_part: bool, scan: &mut MountScan<'_>) {
        let (entries, stat) = match self.open(folder) {
            Ok(opened) => opened,
            Err(errno) => {
                scan.budget.complete &= is_gone(errno);
                if !is_gone(errno) {
                    self.note_unreadable(folder.to_owned(), is_protected_part);
                }
                return;
            }
        };
        let may_predate = self.record_read(folder, &stat, is_protected_part, scan);
        let roots = self.roots_above(folder);
        let mut marks = RepositoryMarks::default();
        // Whether the kernel lists a name but does not let it be examined.
        let mut is_partly_unreadable = false;
        for entry in entries {
            let Ok(entry) = entry else {
                scan.budget.complete = false;
                self.note_unreadable(folder.to_owned(), is_protected_part);
                return;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if !scan.budget.take(is_protected_part) || scan.budget.is_over() {
                self.leave_out(folder.to_owned(), is_protected_part);
                self.probe(folder, may_predate, scan);
                return;
            }
            marks.record_name(name);
            let path = folder.join(OsString::from_vec(name.to_vec()));
            let Some(kind) = self.kind_of(&entry, &path, scan) else {
                is_partly_unreadable = true;
                continue;
            };
            if is_protected(scan.patterns, &path, kind, &roots) {
                match self.stat(&path, scan) {
                    Some(stat) => self.record_found(path.clone(), &stat, may_predate, scan),
                    None => is_partly_unreadable = true,
                }
            }
            if kind == FileType::Directory
                && !self.folders.contains_key(&path)
                && !self.add_folder(path, &roots, may_predate, scan)
            {
                // Read this folder again at the next scan, which then finds the folder below it again.
                self.leave_out(folder.to_owned(), is_protected_part);
            }
        }
        self.note_repository(folder, marks, may_predate && self.was_there(&stat), scan);
        if is_partly_unreadable {
            self.note_unreadable(folder.to_owned(), is_protected_part);
            return;
        }
        if let Some(stamp) = self.folders.get_mut(folder).filter(|stamp| stamp.state.is_some()) {
            stamp.may_predate = false;
        }
    }

    /// Records that a folder is read. Returns whether its contents could be older than the session and no
    /// scan has read them.
    fn record_read(
        &mut self,
        folder: &Path,
        stat: &Stat,
        is_protected_part: bool,
        scan: &MountScan<'_>,
    ) -> bool {
        let state = FileState::from_stat(stat);
        let before = self.folders.get(folder).filter(|stamp| stamp.may_predate);
        let previous_inode = before.and_then(|stamp| stamp.previous_inode);
        // If another folder has replaced this one, its contents are new here.
        let may_predate = before.is_some() && (previous_inode == Some(state.inode) || self.was_there(stat));
        let is_fresh = state.is_after(scan.started_at);
        let stamp =
            FolderStamp { state: Some(state), is_protected_part, is_fresh, may_predate, previous_inode };
        self.folders.insert(folder.to_owned(), stamp);
        may_predate
    }

    /// The kind of a listed entry. Some file systems do not list it, so it is then looked up. `None` if the
    /// lookup fails.
    fn kind_of(&self, entry: &DirEntry, path: &Path, scan: &mut MountScan<'_>) -> Option<FileType> {
        match entry.file_type() {
            FileType::Unknown => self.stat(path, scan).map(|stat| FileType::from_raw_mode(stat.st_mode)),
            kind => Some(kind),
        }
    }

    /// Adds a folder to the folders that the scan still has to read. Returns `false` if there are too many.
    fn add_folder(
        &mut self,
        path: PathBuf,
        roots: &RepositoryRoots,
        may_predate: bool,
        scan: &mut MountScan<'_>,
    ) -> bool {
        let is_protected_part = self.is_protected_part(scan.patterns, &path, roots);
        let is_too_much = self.folders.len() + scan.to_read.len() >= MAX_PROTECTED_FOLDERS
            || path.iter().count() > MAX_PROTECTED_DEPTH;
        if is_too_much && !(is_protected_part && scan.budget.reserve_entries > 0) {
            scan.budget.complete = false;
            return false;
        }
        if may_predate
            && let Ok(stat) = self.handle_stat(&path)
            && self.was_there(&stat)
        {
            let previous_inode = Some(FileState::from_stat(&stat).inode);
            self.folders
                .insert(path.clone(), FolderStamp::unread(is_protected_part, may_predate, previous_inode));
        }
        scan.to_read.add(path, is_protected_part);
        true
    }

    /// Whether a folder is part of a protected path. Paths in such a folder are or may be protected.
    fn is_protected_part(&self, patterns: &ProtectedPaths, folder: &Path, roots: &RepositoryRoots) -> bool {
        let parts = PathParts::new(folder);
        patterns.is_prefix_of_protected(&parts.0)
            || patterns.covers(&parts.0).is_some()
            || self.repositories.contains(folder)
            || roots.any_holds(&parts, |below| {
                let below = || below.iter().map(|part| &**part);
                patterns.is_prefix_in_repository(below()) || patterns.covers_in_repository(below()).is_some()
            })
    }

    /// Returns the folders above a protected path that make the path protected: `.git`, or a repository of
    /// any name.
    pub(super) fn named_folders(&self, patterns: &ProtectedPaths, path: &Path) -> Vec<PathBuf> {
        let is_protected_part = |folder: &&Path| {
            !folder.as_os_str().is_empty()
                && (self.repositories.contains(*folder)
                    || patterns.is_prefix_of_protected(folder.iter().map(|part| part.to_string_lossy())))
        };
        path.ancestors().skip(1).take_while(is_protected_part).map(Path::to_owned).collect()
    }

    /// Records a protected path that exists. The path is new if the last scan did not find it, or if it has changed
    /// since. In a folder that the first scan left out, a path is new only if it has changed since the session began.
    fn record_found(&mut self, path: PathBuf, stat: &Stat, may_predate: bool, scan: &mut MountScan<'_>) {
        // A scan may meet a path twice: as a known path, and in its folder. Read each file once.
        if !scan.found_paths.insert(path.clone()) && self.fingerprints.contains_key(&path) {
            return;
        }
        if self.fingerprints.len() >= MAX_PROTECTED_PATHS && !self.fingerprints.contains_key(&path) {
            scan.budget.complete = false;
            return;
        }
        let mut seen_path = PathFingerprint::from_stat(stat);
        self.contents.add(&mut seen_path, stat, &self.handle, &path, scan.budget);
        let seen_path = seen_path.with_content_of(self.fingerprints.get(&path).copied());
        match self.fingerprints.insert(path.clone(), seen_path) {
            Some(before) if before.is_same(seen_path) => {
                scan.budget.complete &= !seen_path.is_first_content(before);
            }
            None if may_predate && self.was_there(stat) => {}
            _ => {
                scan.changed_paths.insert(path);
            }
        }
    }

    /// Whether a file or folder is unchanged since the session began. A rename counts as a change.
    fn was_there(&self, stat: &Stat) -> bool {
        let FileState { changed_at: changed, modified, .. } = FileState::from_stat(stat);
        changed.max(modified) < self.scan_started_at
    }

    fn open(&self, folder: &Path) -> Result<(Dir, Stat), Errno> {
        let path = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let handle = open_below(&self.handle, path, OFlags::DIRECTORY)?;
        // Take the `stat` before the folder is read. The next scan then sees a change during the read.
        let stat = rustix::fs::fstat(&handle)?;
        Ok((Dir::new(handle)?, stat))
    }

    /// The `stat` of a path. `None` if it is gone, or cannot be examined, which makes the scan incomplete.
    fn stat(&self, path: &Path, scan: &mut MountScan<'_>) -> Option<Stat> {
        let stat = self.handle_stat(path);
        scan.budget.complete &= stat.as_ref().err().is_none_or(|errno| is_gone(*errno));
        stat.ok()
    }

    fn handle_stat(&self, path: &Path) -> Result<Stat, Errno> {
        // `NOFOLLOW` concerns only the last part of the path. Contents are read only through `open_below`.
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        rustix::fs::statat(self.handle.as_fd(), path.as_os_str().as_bytes(), flags)
    }
}

/// Opens a path below a mount for reading. No link is followed.
pub(crate) fn open_below(mount: &OwnedFd, path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    rustix::fs::openat2(mount, path, flags, Mode::empty(), how)
}

pub(super) fn is_gone(errno: Errno) -> bool {
    // A symlink that has replaced a folder or file gives `ELOOP`, because no symlink is followed.
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}
