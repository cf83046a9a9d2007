//! Walks through folders without following links, and collects files with several names.

use std::{
    collections::BTreeMap,
    fs::Metadata,
    io,
    os::fd::AsFd as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    ExposedFiles, FileIdentity, MAX_PRIVATE_ENTRIES, UnknownReason,
    place::{PlaceKind, PrivatePlace, handle_path},
};

/// Suffix of a module's file name.
const MODULE: &str = ".wasm";

/// State of a walk through folders.
#[derive(Debug, Default)]
pub(super) struct FolderWalk {
    /// Files with several names.
    pub(super) names: BTreeMap<FileIdentity, LinkCount>,
    pub(super) left: usize,
    pub(super) has_more: bool,
    /// Whether an entry may exist that could not be read.
    pub(super) failed: bool,
}

#[derive(Debug)]
pub(super) struct LinkCount {
    pub(super) links: u64,
    /// How many of its names were found.
    pub(super) paths: u64,
    /// The first name that counts, relative to the folder.
    pub(super) first: PathBuf,
    place: usize,
    /// Whether names elsewhere matter.
    counts: bool,
}

/// Which files of a folder count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CountedFiles {
    All,
    /// Modules directly in the folder; files further down are not modules. Names further down count as
    /// inside, such as those that cargo leaves in `deps`.
    Modules,
}

/// Searches all private places. Our own files briefly have two names while they are created, so a finding
/// counts only if a second search confirms it.
pub(super) fn private(places: &[PrivatePlace]) -> ExposedFiles {
    let (mut found, mut unknown) = once(places);
    if !found.is_empty() {
        let (again, unknown_still) = once(places);
        found.retain(|identity, _| again.contains_key(identity));
        unknown = unknown.or(unknown_still);
    }
    ExposedFiles::of(found, unknown)
}

fn once(places: &[PrivatePlace]) -> (BTreeMap<FileIdentity, String>, Option<UnknownReason>) {
    let mut walk = FolderWalk { left: MAX_PRIVATE_ENTRIES, ..FolderWalk::default() };
    for (number, place) in places.iter().enumerate() {
        if place.is_read_only() {
            continue;
        }
        let path = handle_path(place.as_fd());
        let Ok(metadata) = std::fs::metadata(&path) else {
            walk.failed = true;
            continue;
        };
        let takes = |metadata: &Metadata| place.takes(metadata.uid());
        if metadata.is_dir() {
            let counted =
                if place.kind == PlaceKind::Modules { CountedFiles::Modules } else { CountedFiles::All };
            walk.enter(&path, number, counted, takes);
        } else if takes(&metadata) {
            walk.note(&metadata, number, true, PathBuf::new);
        }
    }
    let unknown = match (walk.failed, walk.has_more) {
        (true, _) => Some(UnknownReason::Unreadable),
        (false, true) => Some(UnknownReason::TooMany),
        (false, false) => None,
    };
    let outside = walk.names.into_iter().filter(|(_, seen)| seen.counts && seen.links > seen.paths);
    let named = outside.map(|(identity, seen)| (identity, places[seen.place].name(&seen.first)));
    (named.collect(), unknown)
}

impl FolderWalk {
    pub(super) fn enter(
        &mut self,
        root: &Path,
        place: usize,
        counted: CountedFiles,
        takes: impl Fn(&Metadata) -> bool,
    ) {
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let is_root = folder == root;
            let entries = match std::fs::read_dir(&folder) {
                Ok(entries) => entries,
                Err(error) => {
                    self.failed |= is_root || is_no_answer(&error);
                    continue;
                }
            };
            for entry in entries {
                if self.left == 0 {
                    self.has_more = true;
                    return;
                }
                self.left -= 1;
                // Metadata of the entry itself, not of a link's target.
                let (entry, metadata) = match entry.and_then(|entry| Ok((entry.metadata()?, entry))) {
                    Ok((metadata, entry)) => (entry, metadata),
                    Err(error) => {
                        self.failed |= is_no_answer(&error);
                        continue;
                    }
                };
                if metadata.is_dir() {
                    folders.push(entry.path());
                } else if takes(&metadata) {
                    let is_module = is_root && entry.file_name().to_string_lossy().ends_with(MODULE);
                    let below = || entry.path().strip_prefix(root).map(PathBuf::from).unwrap_or_default();
                    self.note(&metadata, place, counted == CountedFiles::All || is_module, below);
                }
            }
        }
    }

    fn note(&mut self, metadata: &Metadata, place: usize, counts: bool, path: impl FnOnce() -> PathBuf) {
        if !metadata.is_file() || metadata.nlink() <= 1 {
            return;
        }
        let new =
            || LinkCount { links: metadata.nlink(), paths: 0, first: PathBuf::new(), place, counts: false };
        let seen = self.names.entry((metadata.dev(), metadata.ino())).or_insert_with(new);
        seen.paths += 1;
        if counts && !seen.counts {
            (seen.first, seen.place, seen.counts) = (path(), place, true);
        }
    }
}

/// Whether an entry may exist that was not seen. `NotFound` means that it is gone, and a folder that this
/// user may not read holds nothing that this user's processes read.
fn is_no_answer(error: &io::Error) -> bool {
    !matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied)
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use rustix::fs::Stat;

    use super::*;
    use crate::links::{LinkSuspicion, PrivatePaths};

    fn stat(path: &Path) -> Stat {
        rustix::fs::stat(path).expect("there")
    }

    fn world() -> (tempfile::TempDir, PrivatePaths) {
        let dir = tempfile::tempdir().expect("a folder");
        for folder in ["vault", "state", "modules", "shared"] {
            fs::create_dir_all(dir.path().join(folder).join("deep")).expect("made");
        }
        for file in ["policy.toml", "token"] {
            fs::write(dir.path().join(file), "p").expect("written");
        }
        let at = |name: &str| Some(dir.path().join(name));
        let paths = PrivatePaths {
            state: at("state"),
            policy: at("policy.toml"),
            modules: at("modules"),
            overlay: at("overlay.toml"),
            secrets: vec![dir.path().join("token"), dir.path().join("missing")],
        };
        (dir, paths)
    }

    fn opened(dir: &Path, paths: &PrivatePaths) -> Vec<PrivatePlace> {
        let flags = rustix::fs::OFlags::PATH;
        let vault = rustix::fs::open(dir.join("vault"), flags, rustix::fs::Mode::empty()).expect("opens");
        paths.open(Some(Arc::new(vault)))
    }

    #[test]
    fn a_private_file_is_exposed_only_by_a_name_outside() {
        let (dir, paths) = world();
        let at = |name: &str| dir.path().join(name);
        let places = opened(dir.path(), &paths);
        fs::write(at("vault/deep/key"), "k").expect("written");
        fs::hard_link(at("vault/deep/key"), at("vault/again")).expect("linked");
        fs::write(at("shared/a"), "a").expect("written");
        fs::hard_link(at("shared/a"), at("shared/b")).expect("linked");
        assert_eq!(private(&places).suspects_any(), None);
        for (file, name) in [
            ("vault/deep/key", "/vault/"),
            ("state/audit.jsonl", "audit.jsonl in the state folder"),
            ("modules/own.wasm", "module own.wasm"),
            ("policy.toml", "the policy file"),
            ("token", "the file of a secret"),
        ] {
            if !at(file).exists() {
                fs::write(at(file), "x").expect("written");
            }
            fs::hard_link(at(file), at("shared/innocent")).expect("linked");
            let found = private(&places);
            assert_eq!(found.suspects(&stat(&at("shared/innocent"))), Some(LinkSuspicion::Private), "{file}");
            assert_eq!(found.suspects(&stat(&at("shared/a"))), None, "{file}");
            assert!(found.named()[0].starts_with(name) && found.named().len() == 1, "{:?}", found.named());
            fs::remove_file(at("shared/innocent")).expect("removed");
            assert_eq!(private(&places).suspects_any(), None, "{file}");
        }
    }

    #[test]
    fn only_modules_count_in_their_folder() {
        let (dir, paths) = world();
        let at = |name: &str| dir.path().join(name);
        let places = opened(dir.path(), &paths);
        for name in ["deps.d", "deep/own.wasm"] {
            fs::write(at("modules").join(name), "x").expect("written");
            fs::hard_link(at("modules").join(name), at("shared").join(name)).expect("linked");
        }
        // The layout that cargo leaves after a build.
        fs::write(at("modules/own.wasm"), "x").expect("written");
        fs::hard_link(at("modules/own.wasm"), at("modules/deep/own-1.wasm")).expect("linked");
        assert_eq!(private(&places).suspects_any(), None);
        fs::hard_link(at("modules/own.wasm"), at("shared/own-1.wasm")).expect("linked");
        assert_eq!(private(&places).named(), ["module own.wasm"]);
    }

    #[test]
    fn missing_folder_makes_the_walk_fail() {
        let (dir, paths) = world();
        let mut walk = FolderWalk { left: 10, ..FolderWalk::default() };
        walk.enter(&dir.path().join("vault"), 0, CountedFiles::All, |_| true);
        assert!(!walk.failed);
        walk.enter(&dir.path().join("nowhere"), 0, CountedFiles::All, |_| true);
        assert!(walk.failed, "{paths:?}");
        assert!(is_no_answer(&io::Error::from(rustix::io::Errno::MFILE)));
        assert!(!is_no_answer(&io::Error::from(io::ErrorKind::NotFound)));
    }

    #[test]
    fn the_overlays_target_is_not_private_and_names_may_change() {
        let (dir, paths) = world();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("shared/a"), "a").expect("written");
        fs::hard_link(at("shared/a"), at("outside")).expect("linked");
        std::os::unix::fs::symlink(at("shared"), at("overlay.toml")).expect("linked");
        let places = opened(dir.path(), &paths);
        // The state folder's name is taken by another folder; the handle still leads to the original.
        fs::write(at("state/log"), "x").expect("written");
        fs::hard_link(at("state/log"), at("shared/log")).expect("linked");
        fs::rename(at("state"), at("moved")).expect("renamed");
        std::os::unix::fs::symlink(at("shared"), at("state")).expect("linked");
        let found = private(&places);
        assert_eq!(found.suspects(&stat(&at("shared/a"))), None);
        assert_eq!(found.suspects(&stat(&at("shared/log"))), Some(LinkSuspicion::Private));
    }
}
