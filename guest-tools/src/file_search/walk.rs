//! The files below a directory, in the order of their paths.
//!
//! The walker of `ignore` refuses every entry on WASI ("unsupported platform"), and it uses threads. This
//! walker takes the kinds of entries from the directory, so no entry is examined separately. It finds ignore
//! files in the listing that it reads anyway, so it never tries to open missing ones.

use std::{fs::FileType, path::Path, vec};

use ignore::overrides::{Override, OverrideBuilder};
use portcullis_sdk::{GuestPath, ToolError};

use super::{
    ignored::{IgnoreFile, IgnoreRules, IgnoreVerdict},
    report::counted,
};

/// The longest `glob`, in bytes.
const MAX_GLOB_BYTES: usize = 1024;

/// The most bytes of names that wait to be visited: 16 MiB. Further names of a huge directory are counted and
/// left out.
const MAX_PENDING_BYTES: usize = 16 << 20;

/// The cost of a name in addition to its bytes.
const NAME_BYTES: usize = 32;

/// A walk over a tree. It does not follow links, so it cannot loop, and it does not recurse.
#[derive(Debug)]
pub(super) struct FileWalk {
    /// The current entry in the system's notation: `outer_bytes` of a test's folder (none in a module), then
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
    left_out: usize,
}

/// A file that the walk found.
#[derive(Debug)]
pub(super) struct FoundFile<'a> {
    pub(super) system: &'a str,
    pub(super) guest: &'a str,
}

/// A directory whose entries are being visited.
#[derive(Debug)]
struct OpenDirectory {
    /// The length of its path.
    path_bytes: usize,
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
    /// The file system does not report the kind with the name. On WASI also a pipe.
    Untold,
    /// A link, a socket, a device.
    Other,
}

impl FileWalk {
    /// A walk below a directory, with the ignore files of its parents within the mount.
    pub(super) fn of(root: &Path, guest: &GuestPath, glob: Option<&str>) -> Result<Self, ToolError> {
        let globs = globs(guest, glob)?;
        let unnamed = || ToolError::failed(format!("cannot search `{guest}`: its path is not UTF-8"));
        let path = root.to_str().ok_or_else(unnamed)?.trim_end_matches('/').to_owned();
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
            left_out: 0,
        };
        walk.rules.add_parents(&walk.path, walk.outer_bytes);
        walk.enter();
        Ok(walk)
    }

    /// The next file, in the order of names.
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
            let kind = if kind == WalkEntryKind::Untold { self.look() } else { kind };
            if kind == WalkEntryKind::Other || !self.is_wanted(&name, kind == WalkEntryKind::Directory) {
                continue;
            }
            if kind == WalkEntryKind::Directory {
                self.enter();
                continue;
            }
            return Some(FoundFile { system: &self.path, guest: &self.path[self.outer_bytes..] });
        }
    }

    /// The numbers of skipped entries, with the reasons.
    pub(super) fn skipped(&self) -> Vec<String> {
        let counts =
            [(self.hidden, "hidden"), (self.ignored, "ignored"), (self.outside_glob, "not in 'glob'")];
        let some = counts.iter().filter(|(count, _)| *count > 0);
        some.map(|(count, why)| format!("{count} {why}")).collect()
    }

    /// Notes about parts that the walk left out, one sentence each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.unreadable > 0 {
            let directories = counted(self.unreadable, "directory or entry", "directories or entries");
            notes.push(format!("{directories} could not be read"));
        }
        if self.left_out > 0 {
            let entries = counted(self.left_out, "entry", "entries");
            notes.push(format!(
                "{entries} of too large directories left out: search subdirectories one by one"
            ));
        }
        notes.extend(self.rules.notes());
        notes
    }

    /// Reads the current directory, and continues in it.
    fn enter(&mut self) {
        let Ok(entries) = std::fs::read_dir(&self.path) else {
            self.unreadable += 1;
            return;
        };
        let mut kept = Vec::new();
        let mut has = [false; IgnoreFile::ALL.len()];
        for entry in entries {
            let Ok(entry) = entry else {
                self.unreadable += 1;
                break;
            };
            // WASI passes only UTF-8 names.
            let Ok(name) = entry.file_name().into_string() else {
                self.unreadable += 1;
                continue;
            };
            let kind = entry.file_type().map_or(WalkEntryKind::Untold, WalkEntryKind::of);
            for (has, file) in has.iter_mut().zip(IgnoreFile::ALL) {
                *has |= kind == WalkEntryKind::File && name == file.name();
            }
            let bytes = name.len() + NAME_BYTES;
            if self.pending_bytes + bytes > MAX_PENDING_BYTES {
                self.left_out += 1;
                continue;
            }
            self.pending_bytes += bytes;
            kept.push(WalkEntry { name: name.into_boxed_str(), kind });
        }
        kept.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let present = IgnoreFile::ALL.into_iter().zip(has).filter_map(|(file, has)| has.then_some(file));
        self.rules.enter(&self.path, self.outer_bytes, present);
        self.levels.push(OpenDirectory { path_bytes: self.path.len(), entries: kept.into_iter() });
    }

    /// Asks for the kind of a single entry.
    fn look(&self) -> WalkEntryKind {
        match std::fs::symlink_metadata(&self.path).map(|found| WalkEntryKind::of(found.file_type())) {
            Ok(kind @ (WalkEntryKind::File | WalkEntryKind::Directory)) => kind,
            _ => WalkEntryKind::Other,
        }
    }

    /// Whether to search or enter an entry. The order is ripgrep's: the glob, then ignore files, which may
    /// include a hidden entry, then the rule about hidden entries.
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
            IgnoreVerdict::Asked => return true,
            IgnoreVerdict::Unnamed if name.starts_with('.') => self.hidden += 1,
            IgnoreVerdict::Unnamed => return true,
        }
        false
    }
}

impl WalkEntryKind {
    fn of(kind: FileType) -> Self {
        match kind {
            kind if kind.is_file() => Self::File,
            kind if kind.is_dir() => Self::Directory,
            kind if kind.is_symlink() => Self::Other,
            _ => Self::Untold,
        }
    }
}

/// The rule of the argument `glob`, relative to the searched directory as with ripgrep's `--glob`.
fn globs(root: &GuestPath, glob: Option<&str>) -> Result<Override, ToolError> {
    let refused = |reason: String| ToolError::invalid_arguments(format!("field 'glob': {reason}"));
    let Some(glob) = glob.filter(|glob| !glob.is_empty()) else { return Ok(Override::empty()) };
    if glob.len() > MAX_GLOB_BYTES {
        return Err(refused(format!("it has {} bytes; at most {MAX_GLOB_BYTES} are allowed", glob.len())));
    }
    let mut builder = OverrideBuilder::new(root.as_str());
    let added = builder.add(glob).map(|_| ());
    added.and_then(|()| builder.build()).map_err(|error| refused(error.to_string()))
}
