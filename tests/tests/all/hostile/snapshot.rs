//! Everything below a folder, for comparison before and after.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The content of a tree: each path with kind, mode, size, links, time of change and content.
#[derive(PartialEq, Eq)]
pub(super) struct Snapshot(BTreeMap<PathBuf, String>);

impl Snapshot {
    pub(super) fn of(root: &Path) -> Self {
        let mut entries = BTreeMap::new();
        let mut open = vec![root.to_owned()];
        while let Some(path) = open.pop() {
            let found = fs::symlink_metadata(&path).expect("readable");
            let content = if found.is_symlink() {
                fs::read_link(&path).expect("readable").display().to_string()
            } else if found.is_file() {
                String::from_utf8_lossy(&fs::read(&path).expect("readable")).into_owned()
            } else if found.is_dir() {
                open.extend(
                    fs::read_dir(&path).expect("readable").map(|entry| entry.expect("an entry").path()),
                );
                String::new()
            } else {
                String::new()
            };
            let line = format!(
                "mode {:o}, {} links, changed {}.{:09}: {content}",
                found.mode(),
                found.nlink(),
                found.mtime(),
                found.mtime_nsec()
            );
            entries.insert(path, line);
        }
        Self(entries)
    }

    /// Asserts that nothing has changed since.
    #[track_caller]
    pub(super) fn assert_same(&self, now: &Self, what: &str) {
        let changed: Vec<_> = self
            .0
            .keys()
            .chain(now.0.keys())
            .filter(|path| self.0.get(*path) != now.0.get(*path))
            .map(|path| format!("{}: {:?} → {:?}", path.display(), self.0.get(path), now.0.get(path)))
            .collect();
        assert!(changed.is_empty(), "{what} changed something:\n{}", changed.join("\n"));
    }
}
