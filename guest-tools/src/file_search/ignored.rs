//! The rules of `.gitignore` and `.ignore` files.
//!
//! As in ripgrep, the patterns of a file apply to everything below its directory, files in deeper directories take
//! precedence, and any `.ignore` takes precedence over any `.gitignore`. Unlike in ripgrep, `.gitignore` files also
//! apply without a Git repository around them, because a copied workspace rarely includes it. Files outside the mount
//! or in `.git` are not read: neither the user's own patterns nor `.git/info/exclude`.

use std::{fs::File, io::Read, path::Path};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

/// The maximum number of bytes of ignore files that apply at a time: 128 KiB. Without this limit, the author of the
/// files could fill the guest's memory with patterns. A file beyond the limit does not apply, and a note says so.
const MAX_RULES_BYTES: usize = 128 << 10;

/// The ignore files that apply to the current directory of a walk.
#[derive(Debug, Default)]
pub(super) struct IgnoreRules {
    /// The directories with ignore files, from the mount down to the current one.
    scopes: Vec<IgnoreScope>,
    /// The number of directories that the walk has entered and not left.
    depth: usize,
    bytes: usize,
    too_large: usize,
    bad_lines: usize,
}

/// The verdict of the ignore files on an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IgnoreVerdict {
    Ignored,
    /// A pattern with `!` includes the entry.
    Included,
    /// No pattern matches the entry.
    NoMatch,
}

/// The kinds of ignore files, in order of precedence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum IgnoreFile {
    Ignore,
    Git,
}

#[derive(Debug)]
struct IgnoreScope {
    /// The depth of the directory. 0 for a directory above the walk.
    depth: usize,
    bytes: usize,
    files: Vec<(IgnoreFile, Gitignore)>,
}

impl IgnoreFile {
    pub(super) const ALL: [Self; 2] = [Self::Ignore, Self::Git];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Ignore => ".ignore",
            Self::Git => ".gitignore",
        }
    }
}

impl IgnoreRules {
    /// Adds the ignore files of the parent directories, from the mount down. Paths are in the system's notation, and
    /// their first `outer_bytes` do not belong to the guest path.
    pub(super) fn add_parents(&mut self, directory: &str, outer_bytes: usize) {
        let guest = &directory[outer_bytes..];
        // The first `/` is the root, which is not a mount.
        let parent_ends = guest.match_indices('/').map(|(at, _)| outer_bytes + at).skip(1);
        // With `..` in the path, the real parents can differ from the parents in the path.
        let parent_ends: Vec<usize> =
            if guest.split('/').any(|part| part == "..") { vec![] } else { parent_ends.collect() };
        for end in parent_ends {
            let parent = &directory[..end];
            let is_file = |file: &IgnoreFile| {
                let metadata = std::fs::symlink_metadata(format!("{parent}/{}", file.name()));
                metadata.is_ok_and(|metadata| metadata.is_file())
            };
            self.add(parent, outer_bytes, IgnoreFile::ALL.into_iter().filter(is_file));
        }
    }

    /// Enters a directory that has these files.
    pub(super) fn enter(
        &mut self,
        directory: &str,
        outer_bytes: usize,
        present_files: impl Iterator<Item = IgnoreFile>,
    ) {
        self.depth += 1;
        self.add(directory, outer_bytes, present_files);
    }

    /// Leaves the directory that was entered last.
    pub(super) fn leave(&mut self) {
        while let Some(scope) = self.scopes.pop_if(|scope| scope.depth == self.depth) {
            self.bytes -= scope.bytes;
        }
        self.depth -= 1;
    }

    /// The verdict of the ignore files on an entry.
    pub(super) fn matched(&self, guest: &str, is_directory: bool) -> IgnoreVerdict {
        for kind in IgnoreFile::ALL {
            let files = self.scopes.iter().rev().flat_map(|scope| &scope.files);
            for (_, rules) in files.filter(|(file, _)| *file == kind) {
                match rules.matched(guest, is_directory) {
                    verdict if verdict.is_ignore() => return IgnoreVerdict::Ignored,
                    verdict if verdict.is_whitelist() => return IgnoreVerdict::Included,
                    _ => {}
                }
            }
        }
        IgnoreVerdict::NoMatch
    }

    /// Notes about rules that could not be applied, one sentence for each.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.too_large > 0 {
            notes.push(format!("ignore files skipped because they are too large: {}", self.too_large));
        }
        if self.bad_lines > 0 {
            notes.push(format!("lines of ignore files that are not patterns: {}", self.bad_lines));
        }
        notes
    }

    fn add(&mut self, directory: &str, outer_bytes: usize, present_files: impl Iterator<Item = IgnoreFile>) {
        let mut scope = IgnoreScope { depth: self.depth, bytes: 0, files: Vec::new() };
        for file in present_files {
            let path = format!("{directory}/{}", file.name());
            let free_bytes = MAX_RULES_BYTES - self.bytes - scope.bytes;
            let Some(text) = read(Path::new(&path), free_bytes) else {
                self.too_large += 1;
                continue;
            };
            scope.bytes += text.len();
            scope.files.push((file, self.parse(&directory[outer_bytes..], &text)));
        }
        if !scope.files.is_empty() {
            self.bytes += scope.bytes;
            self.scopes.push(scope);
        }
    }

    fn parse(&mut self, guest: &str, text: &[u8]) -> Gitignore {
        let text = String::from_utf8_lossy(text);
        let mut builder = GitignoreBuilder::new(guest);
        for line in text.trim_start_matches('\u{feff}').lines() {
            self.bad_lines += usize::from(builder.add_line(None, line).is_err());
        }
        builder.build().unwrap_or_else(|_| {
            self.too_large += 1;
            Gitignore::empty()
        })
    }
}

/// The content of a file. `None` if it is longer than the available room. A file that cannot be read counts as empty.
fn read(path: &Path, max_bytes: usize) -> Option<Vec<u8>> {
    let mut text = Vec::new();
    if let Ok(file) = File::open(path) {
        let _ = file.take(max_bytes as u64 + 1).read_to_end(&mut text);
    }
    (text.len() <= max_bytes).then_some(text)
}
