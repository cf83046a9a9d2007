//! A snapshot of everything below a folder, to compare the states before and after an attempt.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::MetadataExt,
    path::{Path, PathBuf},
};

/// The content of a tree: each path with kind, mode, size, link count, modification time and content.
#[derive(PartialEq, Eq)]
pub(super) struct Snapshot(BTreeMap<PathBuf, String>);

impl Snapshot {
    pub(super) fn take(root: &Path) -> Self {
        let mut entries = BTreeMap::new();
        let mut pending_paths = vec![root.to_owned()];
        while let Some(path) = pending_paths.pop() {
            let metadata = fs::symlink_metadata(&path).expect("readable");
            let content = if metadata.is_symlink() {
                fs::read_link(&path).expect("readable").display().to_string()
            } else if metadata.is_file() {
                String::from_utf8_lossy(&fs::read(&path).expect("readable")).into_owned()
            } else if metadata.is_dir() {
                pending_paths.extend(
                    fs::read_dir(&path).expect("readable").map(|entry| entry.expect("an entry").path()),
                );
                String::new()
            } else {
                String::new()
            };
            let line = format!(
                "mode {:o}, {} links, changed {}.{:09}: {content}",
                metadata.mode(),
                metadata.nlink(),
                metadata.mtime(),
                metadata.mtime_nsec()
            );
            entries.insert(path, line);
        }
        Self(entries)
    }

    /// Asserts that nothing has changed since the snapshot.
    #[track_caller]
    pub(super) fn assert_unchanged(&self, now: &Self, description: &str) {
        let changed: Vec<_> = self
            .0
            .keys()
            .chain(now.0.keys())
            .filter(|path| self.0.get(*path) != now.0.get(*path))
            .map(|path| format!("{}: {:?} → {:?}", path.display(), self.0.get(path), now.0.get(path)))
            .collect();
        assert!(changed.is_empty(), "{description} changed something:\n{}", changed.join("\n"));
    }
}
