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
//! less deep; and of a folder that is too large the protected names are asked for by themselves.

mod budget;
mod seen;

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet, HashMap},
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd as _, OwnedFd},
        unix::ffi::{OsStrExt as _, OsStringExt as _},
    },
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use portcullis_confine::PathAccess;
use portcullis_policy::{ProtectedPaths, RepositoryMarks};
use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, Stat},
    io::Errno,
    time::{ClockId, clock_gettime},
};

use self::{
    budget::{Bounds, Budget, Queue},
    seen::{Found, Identity, TICK, file_time},
};
use crate::{
    SessionSpec, ShellError,
    limits::{
        PROTECTED_BYTES, PROTECTED_DEPTH, PROTECTED_ENTRIES, PROTECTED_FOLDERS, PROTECTED_FOUND,
        PROTECTED_SHARE, PROTECTED_TIME, PROTECTED_TOLD,
    },
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
    /// Whether the session's first look was complete. What it left out cannot be told from what is new.
    began_complete: bool,
}

#[derive(Debug)]
struct Mount {
    name: String,
    handle: OwnedFd,
    /// By path below the mount; the mount itself is the empty one.
    folders: HashMap<PathBuf, Stamp>,
    /// What is protected and there.
    found: BTreeMap<PathBuf, Found>,
    /// The folders that Git would take for repositories, whatever they are called.
    repositories: BTreeSet<PathBuf>,
}

/// What a file tree of the session's own does for protected paths, as paths in that tree.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct ProtectedPlaces {
    /// The outermost protected files and folders, which become read-only.
    pub(crate) read_only: Vec<PathBuf>,
    /// The folders whose names are part of a protected path, such as `.git`: they are to stay where they are.
    pub(crate) fixed: Vec<PathBuf>,
}

/// A folder as it was when it was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    /// None of one that could not be read.
    of: Option<Identity>,
    /// It is part of a protected path.
    is_named: bool,
    /// It had changed so shortly before that another change could have the same time.
    is_fresh: bool,
}

impl Protected {
    /// Looks for what is there. Without patterns nothing is looked at, now or later.
    pub(crate) fn new(spec: &SessionSpec) -> Result<Self, ShellError> {
        let bounds = Bounds { entries: PROTECTED_ENTRIES, share: PROTECTED_SHARE, time: PROTECTED_TIME };
        let mut this =
            Self { patterns: spec.protect.clone(), mounts: Vec::new(), bounds, began_complete: true };
        if spec.protect.patterns().next().is_none() {
            return Ok(this);
        }
        for mount in spec.mounts.iter().filter(|mount| mount.access == PathAccess::Write) {
            let handle = open_mount(&mount.path)?;
            let (folders, found) = (HashMap::new(), BTreeMap::new());
            let (name, repositories) = (mount.name.clone(), BTreeSet::new());
            this.mounts.push(Mount { name, handle, folders, found, repositories });
        }
        this.began_complete = this.look().complete;
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
        ProtectedFound { created, complete: budget.complete && self.began_complete }
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

impl Mount {
    fn look(&mut self, patterns: &ProtectedPaths, budget: &mut Budget) -> Vec<String> {
        let now = clock_gettime(ClockId::Realtime);
        let mut to_read = Queue::default();
        if self.folders.is_empty() {
            to_read.add(PathBuf::new(), false);
        }
        // What does not fit is looked for in vain.
        budget.complete &= self.found.len() < PROTECTED_FOUND;
        let mut new = BTreeSet::new();
        self.recheck(&mut new, budget);
        let mut folders = std::mem::take(&mut self.folders);
        for pass in [true, false] {
            folders.retain(|path, stamp| {
                // Where the time is over: looked at the next time.
                if stamp.is_named != pass || budget.is_over() {
                    return true;
                }
                match self.handle_stat(path) {
                    Ok(stat) if FileType::from_raw_mode(stat.st_mode) == FileType::Directory => {
                        if stamp.is_fresh || stamp.of != Some(Identity::of(&stat)) {
                            to_read.add(path.clone(), stamp.is_named);
                        }
                        true
                    }
                    Ok(_) => false,
                    Err(errno) => {
                        budget.complete &= is_gone(errno);
                        !is_gone(errno)
                    }
                }
            });
        }
        self.folders = folders;
        self.repositories.retain(|folder| self.folders.contains_key(folder));
        while let Some((folder, is_named)) = to_read.next() {
            if budget.is_over() {
                self.leave_out(folder, is_named);
                continue;
            }
            self.read(&folder, is_named, patterns, (now.tv_sec, now.tv_nsec), budget, &mut to_read, &mut new);
        }
        new.iter()
            .map(|path| Path::new("/").join(&self.name).join(path).to_string_lossy().into_owned())
            .collect()
    }

    /// What was found before: gone, or changed without a change of its folder.
    fn recheck(&mut self, new: &mut BTreeSet<PathBuf>, budget: &mut Budget) {
        let paths: Vec<PathBuf> = self.found.keys().cloned().collect();
        for path in paths {
            if budget.is_over() {
                return;
            }
            match self.handle_stat(&path) {
                Ok(stat) => self.find(path, &stat, new, budget),
                Err(errno) => {
                    budget.complete &= is_gone(errno);
                    self.found.remove(&path);
                }
            }
        }
    }

    /// Remembers a folder that was to be read and was not: it is read at the next look.
    fn leave_out(&mut self, folder: PathBuf, is_named: bool) {
        self.folders.insert(folder, Stamp { of: None, is_named, is_fresh: true });
    }

    /// Asks for the protected names in a folder of which not all names are read. They are asked for as the policy
    /// writes them.
    fn probe(
        &mut self,
        folder: &Path,
        patterns: &ProtectedPaths,
        budget: &mut Budget,
        to_read: &mut Queue,
        new: &mut BTreeSet<PathBuf>,
    ) {
        for pattern in patterns.patterns() {
            if budget.is_over() {
                return;
            }
            let mut path = folder.to_owned();
            for part in pattern.split('/') {
                path.push(part);
                let Ok(stat) = self.handle_stat(&path) else { break };
                let kind = FileType::from_raw_mode(stat.st_mode);
                if self.is_protected(patterns, &path, kind) {
                    self.find(path.clone(), &stat, new, budget);
                }
                if kind == FileType::Directory && !self.folders.contains_key(&path) {
                    to_read.add(path.clone(), true);
                }
            }
        }
    }

    /// Whether a folder is part of a protected path: what is in it is one, or may be.
    fn is_named(&self, patterns: &ProtectedPaths, folder: &Path) -> bool {
        let parts = || folder.iter().map(|part| part.to_string_lossy());
        patterns.is_prefix_of_protected(parts())
            || patterns.covers(parts()).is_some()
            || self.repositories.contains(folder)
            || self.below_repositories(folder).any(|below| {
                let below = || below.iter().map(|part| &**part);
                patterns.is_prefix_in_repository(below()) || patterns.covers_in_repository(below()).is_some()
            })
    }

    #[expect(clippy::too_many_arguments, reason = "all of one look, which has no other place")]
    fn read(
        &mut self,
        folder: &Path,
        is_named: bool,
        patterns: &ProtectedPaths,
        now: (i64, i64),
        budget: &mut Budget,
        to_read: &mut Queue,
        new: &mut BTreeSet<PathBuf>,
    ) {
        let (entries, stat) = match self.open(folder) {
            Ok(opened) => opened,
            Err(errno) => {
                budget.complete &= is_gone(errno);
                if !is_gone(errno) {
                    self.leave_out(folder.to_owned(), is_named);
                }
                return;
            }
        };
        let stamp =
            Stamp { of: Some(Identity::of(&stat)), is_named, is_fresh: Identity::of(&stat).is_after(now) };
        self.folders.insert(folder.to_owned(), stamp);
        let mut marks = RepositoryMarks::default();
        for entry in entries {
            let Ok(entry) = entry else {
                budget.complete = false;
                self.leave_out(folder.to_owned(), is_named);
                return;
            };
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            if !budget.take(is_named) || budget.is_over() {
                self.leave_out(folder.to_owned(), is_named);
                self.probe(folder, patterns, budget, to_read, new);
                return;
            }
            marks.see(name);
            let path = folder.join(OsString::from_vec(name.to_vec()));
            let mut kind = entry.file_type();
            if kind == FileType::Unknown {
                let Ok(stat) = self.handle_stat(&path) else { continue };
                kind = FileType::from_raw_mode(stat.st_mode);
            }
            if self.is_protected(patterns, &path, kind)
                && let Ok(stat) = self.handle_stat(&path)
            {
                self.find(path.clone(), &stat, new, budget);
            }
            if kind == FileType::Directory && !self.folders.contains_key(&path) {
                let is_named = self.is_named(patterns, &path);
                let is_too_much = self.folders.len() + to_read.len() >= PROTECTED_FOLDERS
                    || path.iter().count() > PROTECTED_DEPTH;
                if is_too_much && !(is_named && budget.share > 0) {
                    budget.complete = false;
                    // Found anew at the next look.
                    self.leave_out(folder.to_owned(), stamp.is_named);
                } else {
                    to_read.add(path, is_named);
                }
            }
        }
        self.note_repository(folder, marks, patterns, budget, to_read, new);
    }

    /// Whether a path is protected by its name, or by what it is.
    fn is_protected(&self, patterns: &ProtectedPaths, path: &Path, kind: FileType) -> bool {
        let parts = || path.iter().map(|part| part.to_string_lossy());
        if patterns.covers(parts()).is_some() {
            return true;
        }
        match kind {
            // A link in place of a folder would make what is behind it protected.
            FileType::Symlink if patterns.is_prefix_of_protected(parts()) => return true,
            // Git reads in a file of this name where the repository is.
            FileType::RegularFile
                if path
                    .file_name()
                    .and_then(OsStr::to_str)
                    .is_some_and(|name| patterns.names_repository(name)) =>
            {
                return true;
            }
            _ => {}
        }
        self.below_repositories(path).any(|below| {
            patterns.covers_in_repository(below.iter().map(|part| &**part)).is_some()
                || (kind == FileType::Symlink
                    && patterns.is_prefix_in_repository(below.iter().map(|part| &**part)))
        })
    }

    /// The parts of a path below each repository that it lies in.
    fn below_repositories<'a>(&'a self, path: &'a Path) -> impl Iterator<Item = Vec<Cow<'a, str>>> {
        let above = path.ancestors().skip(1).take(if self.repositories.is_empty() { 0 } else { usize::MAX });
        above.filter(move |folder| self.repositories.contains(*folder)).filter_map(move |folder| {
            let below = path.strip_prefix(folder).ok()?;
            Some(below.iter().map(|part| part.to_string_lossy()).collect())
        })
    }

    /// Notes whether a folder is a repository. Of one that has become one, what is in it is looked at anew.
    fn note_repository(
        &mut self,
        folder: &Path,
        marks: RepositoryMarks,
        patterns: &ProtectedPaths,
        budget: &mut Budget,
        to_read: &mut Queue,
        new: &mut BTreeSet<PathBuf>,
    ) {
        if !marks.is_repository() {
            if self.repositories.remove(folder) {
                let mut found = std::mem::take(&mut self.found);
                found.retain(|path, found| {
                    !path.starts_with(folder) || self.is_protected(patterns, path, found.kind)
                });
                self.found = found;
            }
            return;
        }
        if !self.repositories.insert(folder.to_owned()) {
            return;
        }
        let Ok((entries, _)) = self.open(folder) else { return };
        for entry in entries.map_while(Result::ok) {
            if budget.is_over() {
                return;
            }
            let name = entry.file_name().to_bytes();
            if matches!(name, b"." | b"..") {
                continue;
            }
            let path = folder.join(OsString::from_vec(name.to_vec()));
            let Ok(stat) = self.handle_stat(&path) else { continue };
            let kind = FileType::from_raw_mode(stat.st_mode);
            if !self.is_protected(patterns, &path, kind) {
                continue;
            }
            self.find(path.clone(), &stat, new, budget);
            if kind == FileType::Directory && self.folders.contains_key(&path) {
                to_read.add(path, true);
            }
        }
    }

    /// The folders above a protected path whose names make it one: `.git`, and a repository of any name.
    fn named_folders(&self, patterns: &ProtectedPaths, path: &Path) -> Vec<PathBuf> {
        let is_named = |folder: &&Path| {
            !folder.as_os_str().is_empty()
                && (self.repositories.contains(*folder)
                    || patterns.is_prefix_of_protected(folder.iter().map(|part| part.to_string_lossy())))
        };
        path.ancestors().skip(1).take_while(is_named).map(Path::to_owned).collect()
    }

    fn find(&mut self, path: PathBuf, stat: &Stat, new: &mut BTreeSet<PathBuf>, budget: &mut Budget) {
        let found = Found::of(stat);
        if self.found.len() >= PROTECTED_FOUND && !self.found.contains_key(&path) {
            budget.complete = false;
            return;
        }
        if self.found.insert(path.clone(), found) != Some(found) {
            new.insert(path);
        }
    }

    fn open(&self, folder: &Path) -> Result<(Dir, Stat), Errno> {
        let path = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let how = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let handle = rustix::fs::openat2(&self.handle, path, flags, Mode::empty(), how)?;
        // Before it is read: a change during that is seen next time.
        let stat = rustix::fs::fstat(&handle)?;
        Ok((Dir::new(handle)?, stat))
    }

    fn handle_stat(&self, path: &Path) -> Result<Stat, Errno> {
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::EMPTY_PATH;
        rustix::fs::statat(self.handle.as_fd(), path.as_os_str().as_bytes(), flags)
    }
}

fn is_gone(errno: Errno) -> bool {
    matches!(errno, Errno::NOENT | Errno::NOTDIR | Errno::LOOP)
}

/// Between two looks at that clock, which ticks every 1 to 10 ms.
const PAUSE: Duration = Duration::from_millis(1);

#[cfg(test)]
mod tests;
