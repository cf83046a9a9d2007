//! Walks over the files below a directory, in the order of their paths.
//!
//! The walker of `ignore` uses threads, and refuses every entry on WASI ("unsupported platform"). This walker gets
//! the kinds of entries from the directory listing, without a call per entry. It also finds ignore files in the
//! listing, so it never tries to open a missing one.
//!
//! Each file is opened by its name in its open directory (fast path). The host resolves and checks a single
//! name in half the time of a path.

use std::{fs::File, io, os::fd::OwnedFd, path::Path, vec};

use ignore::overrides::{Override, OverrideBuilder};
use portcullis_sdk::{GuestPath, ToolError};
use rustix::fs::{Dir, FileType, Mode, OFlags};

use super::{
    ignored::{IgnoreFile, IgnoreRules, IgnoreVerdict},
    report::count_with_noun,
};

/// The maximum length of a `glob`: 1 KiB.
const MAX_GLOB_BYTES: usize = 1024;

/// The maximum number of bytes of names that wait to be visited: 16 MiB. Further names of a huge directory
/// are only counted.
const MAX_PENDING_BYTES: usize = 16 << 20;

/// The memory that a name takes in addition to its bytes, as an estimate.
const NAME_BYTES: usize = 32;

/// The maximum number of directories that are open at the same time: 32. A guest has 128 descriptors. Files of deeper
/// directories are opened by their paths.
const MAX_OPEN_DIRECTORIES: usize = 32;

/// A walk over a tree. The walk does not follow links, so it cannot loop, and it does not recurse.
#[derive(Debug)]
pub(super) struct FileWalk {
    /// The current entry in the system's notation: the `outer_bytes` of a test's folder (none in a module), followed by
    /// the guest path.
    path: String,
    outer_bytes: usize,
    levels: Vec<OpenDirectory>,
    pending_bytes: usize,
    globs: Override,
    rules: IgnoreRules,
    hidden: usize,
    ignored: usize,
    outside_glob: usize,
    unreadable: usize,
    omitted_entries: usize,
}

#[derive(Debug)]
pub(super) struct FoundFile<'a> {
    pub(super) guest: &'a str,
    system: &'a str,
    name: &'a str,
    directory: Option<&'a Dir>,
}

impl FoundFile<'_> {
    /// Opens the file for reading.
    pub(super) fn open(&self) -> io::Result<File> {
        let Some(directory) = self.directory else { return File::open(self.system) };
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW;
        Ok(rustix::fs::openat(directory.fd()?, self.name, flags, Mode::empty())?.into())
    }
}

/// A directory whose entries are being visited.
#[derive(Debug)]
struct OpenDirectory {
    /// The length of the directory's path, in bytes.
    path_bytes: usize,
    /// The directory itself, except below [`MAX_OPEN_DIRECTORIES`] others.
    directory: Option<Dir>,
    entries: vec::IntoIter<WalkEntry>,
}

#[derive(Debug)]
struct WalkEntry {
    name: Box<str>,
    kind: WalkEntryKind,
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum WalkEntryKind {
    File,
    Directory,
    /// The file system does not report the kind with the name. On WASI this can also be a pipe.
    Unknown,
    /// A link, a socket or a device.
    Other,
}

impl FileWalk {
    /// A walk below a directory, with the ignore files of its parents within the mount.
    pub(super) fn new(root: &Path, guest: &GuestPath, glob: Option<&str>) -> Result<Self, ToolError> {
        let globs = glob_override(guest, glob)?;
        let unnamed = || ToolError::failed(format!("cannot search `{guest}`: its path is not UTF-8"));
        let path = root.to_str().ok_or_else(unnamed)?.trim_end_matches('/').to_owned();
        // In a module, both paths are equal. In a test, the test's folder is a prefix that is never shown.
        let outer_bytes = path.len().saturating_sub(guest.as_str().len());
        let mut walk = Self {
            path,
            outer_bytes,
            levels: Vec::new(),
            pending_bytes: 0,
            globs,
            rules: IgnoreRules::default(),
            hidden: 0,
            ignored: 0,
            outside_glob: 0,
            unreadable: 0,
            omitted_entries: 0,
        };
        walk.rules.add_parents(&walk.path, walk.outer_bytes);
        walk.enter();
        Ok(walk)
    }

    /// The next file, in the order of the names.
    pub(super) fn next_file(&mut self) -> Option<FoundFile<'_>> {
        loop {
            let level = self.levels.last_mut()?;
            self.path.truncate(level.path_bytes);
            let Some(WalkEntry { name, kind }) = level.entries.next() else {
                self.levels.pop();
                self.rules.leave();
                continue;
            };
            self.pending_bytes -= name.len() + NAME_BYTES;
            self.path.push('/');
            self.path.push_str(&name);
            let kind = if kind == WalkEntryKind::Unknown { self.look_up_kind() } else { kind };
            if kind == WalkEntryKind::Other || !self.is_wanted(&name, kind == WalkEntryKind::Directory) {
                continue;
            }
            if kind == WalkEntryKind::Directory {
                self.enter();
                continue;
            }
            let level = self.levels.last()?;
            return Some(FoundFile {
                guest: &self.path[self.outer_bytes..],
                system: &self.path,
                name: &self.path[level.path_bytes + 1..],
                directory: level.directory.as_ref(),
            });
        }
    }

    /// Returns the number of entries that were skipped, by reason.
    pub(super) fn skipped(&self) -> Vec<String> {
        let counts =
            [(self.hidden, "hidden"), (self.ignored, "ignored"), (self.outside_glob, "not in 'glob'")];
        let nonzero_counts = counts.iter().filter(|(count, _)| *count > 0);
        nonzero_counts.map(|(count, reason)| format!("{count} {reason}")).collect()
    }

    /// Notes about what the walk left out, one sentence for each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unreadable > 0 {
            let directories =
                count_with_noun(self.unreadable, "directory or entry", "directories or entries");
            notes.push(format!("{directories} could not be read"));
        }
        if self.omitted_entries > 0 {
            let entries = count_with_noun(self.omitted_entries, "entry", "entries");
            notes.push(format!(
                "{entries} of too large directories left out: search subdirectories one by one"
            ));
        }
        notes.extend(self.rules.notes());
        notes
    }

    /// Reads the current directory, and continues with its entries.
    fn enter(&mut self) {
        let opened = File::open(&self.path).map(OwnedFd::from);
        let Ok(mut directory) = opened.and_then(|directory| Ok(Dir::new(directory)?)) else {
            self.unreadable += 1;
            return;
        };
        let mut kept_entries = Vec::new();
        let mut present_files = [false; IgnoreFile::ALL.len()];
        while let Some(entry) = directory.read() {
            let Ok(entry) = entry else {
                self.unreadable += 1;
                break;
            };
            // WASI passes only UTF-8 names.
            let Ok(name) = entry.file_name().to_str() else {
                self.unreadable += 1;
                continue;
            };
            if matches!(name, "." | "..") {
                continue;
            }
            let kind = WalkEntryKind::from_file_type(entry.file_type());
            for (is_present, file) in present_files.iter_mut().zip(IgnoreFile::ALL) {
                *is_present |= kind == WalkEntryKind::File && name == file.name();
            }
            let bytes = name.len() + NAME_BYTES;
            if self.pending_bytes + bytes > MAX_PENDING_BYTES {
                self.omitted_entries += 1;
                continue;
            }
            self.pending_bytes += bytes;
            kept_entries.push(WalkEntry { name: name.into(), kind });
        }
        kept_entries.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let present_ignore_files = IgnoreFile::ALL
            .into_iter()
            .zip(present_files)
            .filter_map(|(file, is_present)| is_present.then_some(file));
        self.rules.enter(&self.path, self.outer_bytes, present_ignore_files);
        let directory = (self.levels.len() < MAX_OPEN_DIRECTORIES).then_some(directory);
        let entries = kept_entries.into_iter();
        self.levels.push(OpenDirectory { path_bytes: self.path.len(), directory, entries });
    }

    /// Looks up the kind of a single entry.
    fn look_up_kind(&self) -> WalkEntryKind {
        match std::fs::symlink_metadata(&self.path) {
            Ok(metadata) if metadata.is_file() => WalkEntryKind::File,
            Ok(metadata) if metadata.is_dir() => WalkEntryKind::Directory,
            _ => WalkEntryKind::Other,
        }
    }

    /// Whether to search or enter an entry. The order is ripgrep's: first the glob, then the ignore files,
    /// which can include a hidden entry, and then the rule about hidden entries.
    fn is_wanted(&mut self, name: &str, is_directory: bool) -> bool {
        if name == ".git" {
            return false;
        }
        let guest = &self.path[self.outer_bytes..];
        if !self.globs.is_empty() {
            let verdict = self.globs.matched(guest, is_directory);
            self.outside_glob += usize::from(verdict.is_ignore());
            if !verdict.is_none() {
                return verdict.is_whitelist();
            }
        }
        match self.rules.matched(guest, is_directory) {
            IgnoreVerdict::Ignored => self.ignored += 1,
            IgnoreVerdict::Included => return true,
            IgnoreVerdict::NoMatch if name.starts_with('.') => self.hidden += 1,
            IgnoreVerdict::NoMatch => return true,
        }
        false
    }
}

impl WalkEntryKind {
    fn from_file_type(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Other,
            _ => Self::Unknown,
        }
    }
}

/// The rule of the argument `glob`, relative to the searched directory like ripgrep's `--glob`.
fn glob_override(root: &GuestPath, glob: Option<&str>) -> Result<Override, ToolError> {
    let refused = |reason: String| ToolError::invalid_arguments(format!("field 'glob': {reason}"));
    let Some(glob) = glob.filter(|glob| !glob.is_empty()) else { return Ok(Override::empty()) };
    if glob.len() > MAX_GLOB_BYTES {
        return Err(refused(format!("it has {} bytes; at most {MAX_GLOB_BYTES} are allowed", glob.len())));
    }
    let mut builder = OverrideBuilder::new(root.as_str());
    let add_result = builder.add(glob).map(|_| ());
    add_result.and_then(|()| builder.build()).map_err(|error| refused(error.to_string()))
}
