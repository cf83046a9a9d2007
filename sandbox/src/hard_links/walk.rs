//! Walks folders without following symlinks, and collects the files with several names.

use std::{
    collections::BTreeMap,
    fs::Metadata,
    io,
    os::fd::AsFd as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    ExposedFiles, FileIdentity, HardLinkSearchFault, MAX_PRIVATE_ENTRIES,
    private::{OpenPrivatePath, PrivateKind, handle_path},
};

/// The suffix of a module's file name.
const MODULE: &str = ".wasm";

/// The state of a walk through folders.
#[derive(Debug, Default)]
pub(super) struct FolderWalk {
    /// Files with several names.
    pub(super) files: BTreeMap<FileIdentity, LinkedFile>,
    pub(super) remaining_entries: usize,
    pub(super) has_more: bool,
    /// Whether there may be an entry that could not be read.
    pub(super) is_incomplete: bool,
}

#[derive(Debug)]
pub(super) struct LinkedFile {
    pub(super) link_count: u64,
    /// The number of the file's names that were found.
    pub(super) found_count: u64,
    /// The first counted name of the file, relative to the folder.
    pub(super) first_path: PathBuf,
    path_number: usize,
    /// Whether a name of this file outside the private folders is an exposure.
    is_counted: bool,
}

/// The files of a folder that count as private.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedFiles {
    All,
    /// Modules directly in the folder. Files in subfolders are not modules, but their names count as
    /// names inside the private folder. An example is the hard links that cargo leaves in `deps`.
    Modules,
}

/// Searches all private folders and files. This process's own files briefly have two names while they are
/// created, so a finding counts only if a second search confirms it.
pub(super) fn search_private(opened_paths: &[OpenPrivatePath]) -> ExposedFiles {
    let (mut exposed_names, mut unknown) = search_once(opened_paths);
    if !exposed_names.is_empty() {
        let (second_search, unknown_still) = search_once(opened_paths);
        exposed_names.retain(|identity, _| second_search.contains_key(identity));
        unknown = unknown.or(unknown_still);
    }
    ExposedFiles::new(exposed_names, unknown)
}

fn search_once(
    opened_paths: &[OpenPrivatePath],
) -> (BTreeMap<FileIdentity, String>, Option<HardLinkSearchFault>) {
    let mut walk = FolderWalk { remaining_entries: MAX_PRIVATE_ENTRIES, ..FolderWalk::default() };
    for (number, opened) in opened_paths.iter().enumerate() {
        if opened.is_read_only() {
            continue;
        }
        let path = handle_path(opened.as_fd());
        let Ok(metadata) = std::fs::metadata(&path) else {
            walk.is_incomplete = true;
            continue;
        };
        let counts_as_private = |metadata: &Metadata| opened.counts_owner_as_private(metadata.uid());
        if metadata.is_dir() {
            let counted =
                if opened.kind == PrivateKind::Modules { CountedFiles::Modules } else { CountedFiles::All };
            walk.enter(&path, number, counted, counts_as_private);
        } else if counts_as_private(&metadata) {
            walk.record(&metadata, number, true, PathBuf::new);
        }
    }
    let unknown = match (walk.is_incomplete, walk.has_more) {
        (true, _) => Some(HardLinkSearchFault::Unreadable),
        (false, true) => Some(HardLinkSearchFault::TooMany),
        (false, false) => None,
    };
    let outside =
        walk.files.into_iter().filter(|(_, file)| file.is_counted && file.link_count > file.found_count);
    let outside_names =
        outside.map(|(identity, file)| (identity, opened_paths[file.path_number].name(&file.first_path)));
    (outside_names.collect(), unknown)
}

impl FolderWalk {
    pub(super) fn enter(
        &mut self,
        root: &Path,
        path_number: usize,
        counted: CountedFiles,
        counts_as_private: impl Fn(&Metadata) -> bool,
    ) {
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let is_root = folder == root;
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.is_incomplete |= is_root || may_hide_entries(&error);
                    continue;
                }
            };
            for entry in entries {
                if self.remaining_entries == 0 {
                    self.has_more = true;
                    return;
                }
                self.remaining_entries -= 1;
                // The entry's own metadata: a symlink is not followed.
                let (entry, metadata) = match entry.and_then(|entry| Ok((entry.metadata()?, entry))) {
                    Ok((metadata, entry)) => (entry, metadata),
                    Err(error) => {
                        self.is_incomplete |= may_hide_entries(&error);
                        continue;
                    }
                };
                if metadata.is_dir() {
                    folders.push(entry.path());
                } else if counts_as_private(&metadata) {
                    let is_module = is_root && entry.file_name().to_string_lossy().ends_with(MODULE);
                    let relative_path =
                        || entry.path().strip_prefix(root).map(PathBuf::from).unwrap_or_default();
                    self.record(
                        &metadata,
                        path_number,
                        counted == CountedFiles::All || is_module,
                        relative_path,
                    );
                }
            }
        }
    }

    fn record(
        &mut self,
        metadata: &Metadata,
        path_number: usize,
        is_counted: bool,
        path: impl FnOnce() -> PathBuf,
    ) {
        if !metadata.is_file() || metadata.nlink() <= 1 {
            return;
        }
        let new = || LinkedFile {
            link_count: metadata.nlink(),
            found_count: 0,
            first_path: PathBuf::new(),
            path_number,
            is_counted: false,
        };
        let file = self.files.entry((metadata.dev(), metadata.ino())).or_insert_with(new);
        file.found_count += 1;
        if is_counted && !file.is_counted {
            (file.first_path, file.path_number, file.is_counted) = (path(), path_number, true);
        }
    }
}

/// Returns whether there may be an entry that was not seen. `NotFound` means that the entry is gone. A
/// folder that this user may not read contains nothing that this user's processes read.
fn may_hide_entries(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use rustix::fs::Stat;

    use super::*;
    use crate::hard_links::{HardLinkSuspicion, PrivatePaths};

    fn stat(path: &Path) -> Stat {
        rustix::fs::stat(path).expect("the path exists")
    }

    fn fixture() -> (tempfile::TempDir, PrivatePaths) {
        let dir = tempfile::tempdir().expect("a folder");
        for folder in ["vault", "state", "modules", "shared"] {
            fs::create_dir_all(dir.path().join(folder).join("deep")).expect("the folder can be made");
        }
        for file in ["policy.toml", "token"] {
            fs::write(dir.path().join(file), "p").expect("written");
        }
        let path_of = |name: &str| Some(dir.path().join(name));
        let paths = PrivatePaths {
            state: path_of("state"),
            cache: None,
            policy: path_of("policy.toml"),
            modules: path_of("modules"),
            overlay: path_of("overlay.toml"),
            secrets: vec![dir.path().join("token"), dir.path().join("missing")],
        };
        (dir, paths)
    }

    fn open_private_paths(dir: &Path, paths: &PrivatePaths) -> Vec<OpenPrivatePath> {
        let flags = rustix::fs::OFlags::PATH;
        let vault = rustix::fs::open(dir.join("vault"), flags, rustix::fs::Mode::empty()).expect("opens");
        paths.open(Some(Arc::new(vault)))
    }

    #[test]
    fn a_private_file_is_exposed_only_by_a_name_outside() {
        let (dir, paths) = fixture();
        let path_of = |name: &str| dir.path().join(name);
        let opened_paths = open_private_paths(dir.path(), &paths);
        fs::write(path_of("vault/deep/key"), "k").expect("written");
        fs::hard_link(path_of("vault/deep/key"), path_of("vault/again")).expect("linked");
        fs::write(path_of("shared/a"), "a").expect("written");
        fs::hard_link(path_of("shared/a"), path_of("shared/b")).expect("linked");
        assert_eq!(search_private(&opened_paths).suspects_any(), None);
        for (file, name) in [
            ("vault/deep/key", "/vault/"),
            ("state/audit.jsonl", "audit.jsonl in the state folder"),
            ("modules/own.wasm", "module own.wasm"),
            ("policy.toml", "the policy file"),
            ("token", "the file of a secret"),
        ] {
            if !path_of(file).exists() {
                fs::write(path_of(file), "x").expect("written");
            }
            fs::hard_link(path_of(file), path_of("shared/innocent")).expect("linked");
            let exposed = search_private(&opened_paths);
            assert_eq!(
                exposed.suspicion_of(&stat(&path_of("shared/innocent"))),
                Some(HardLinkSuspicion::Private),
                "{file}"
            );
            assert_eq!(exposed.suspicion_of(&stat(&path_of("shared/a"))), None, "{file}");
            assert!(
                exposed.names()[0].starts_with(name) && exposed.names().len() == 1,
                "{:?}",
                exposed.names()
            );
            fs::remove_file(path_of("shared/innocent")).expect("removed");
            assert_eq!(search_private(&opened_paths).suspects_any(), None, "{file}");
        }
    }

    #[test]
    fn only_modules_count_in_their_folder() {
        let (dir, paths) = fixture();
        let path_of = |name: &str| dir.path().join(name);
        let opened_paths = open_private_paths(dir.path(), &paths);
        for name in ["deps.d", "deep/own.wasm"] {
            fs::write(path_of("modules").join(name), "x").expect("written");
            fs::hard_link(path_of("modules").join(name), path_of("shared").join(name)).expect("linked");
        }
        // The layout that cargo leaves after a build.
        fs::write(path_of("modules/own.wasm"), "x").expect("written");
        fs::hard_link(path_of("modules/own.wasm"), path_of("modules/deep/own-1.wasm")).expect("linked");
        assert_eq!(search_private(&opened_paths).suspects_any(), None);
        fs::hard_link(path_of("modules/own.wasm"), path_of("shared/own-1.wasm")).expect("linked");
        assert_eq!(search_private(&opened_paths).names(), ["module own.wasm"]);
    }

    #[test]
    fn missing_folder_makes_the_walk_fail() {
        let (dir, paths) = fixture();
        let mut walk = FolderWalk { remaining_entries: 10, ..FolderWalk::default() };
        walk.enter(&dir.path().join("vault"), 0, CountedFiles::All, |_| true);
        assert!(!walk.is_incomplete);
        walk.enter(&dir.path().join("nowhere"), 0, CountedFiles::All, |_| true);
        assert!(walk.is_incomplete, "{paths:?}");
        assert!(may_hide_entries(&io::Error::from(rustix::io::Errno::MFILE)));
        assert!(!may_hide_entries(&io::Error::from(io::ErrorKind::NotFound)));
    }

    #[test]
    fn the_overlays_target_is_not_private_and_names_may_change() {
        let (dir, paths) = fixture();
        let path_of = |name: &str| dir.path().join(name);
        fs::write(path_of("shared/a"), "a").expect("written");
        fs::hard_link(path_of("shared/a"), path_of("outside")).expect("linked");
        std::os::unix::fs::symlink(path_of("shared"), path_of("overlay.toml")).expect("linked");
        let opened_paths = open_private_paths(dir.path(), &paths);
        // Another folder now has the state folder's name. The handle still leads to the original folder.
        fs::write(path_of("state/log"), "x").expect("written");
        fs::hard_link(path_of("state/log"), path_of("shared/log")).expect("linked");
        fs::rename(path_of("state"), path_of("moved")).expect("renamed");
        std::os::unix::fs::symlink(path_of("shared"), path_of("state")).expect("linked");
        let exposed = search_private(&opened_paths);
        assert_eq!(exposed.suspicion_of(&stat(&path_of("shared/a"))), None);
        assert_eq!(exposed.suspicion_of(&stat(&path_of("shared/log"))), Some(HardLinkSuspicion::Private));
    }
}
