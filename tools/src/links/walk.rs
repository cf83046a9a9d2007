//! Looks at what lies in folders, without following links, and gathers the files with several names.

use std::{
    collections::BTreeMap,
    fs::Metadata,
    os::fd::AsFd as _,
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    Exposed, Identity, MAX_PRIVATE_ENTRIES,
    place::{Kind, Place, handle_path},
};

/// What a module's file name ends with.
const MODULE: &str = ".wasm";

/// A walk through folders.
#[derive(Debug, Default)]
pub(super) struct Walk {
    /// Files with several names.
    pub(super) names: BTreeMap<Identity, Seen>,
    pub(super) left: usize,
    pub(super) has_more: bool,
}

#[derive(Debug)]
pub(super) struct Seen {
    pub(super) links: u64,
    /// How many of them were met.
    pub(super) paths: u64,
    /// The first of them, below the folder.
    pub(super) first: PathBuf,
    place: usize,
}

/// What of a folder is looked at.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Depth {
    /// All that lies below.
    Whole,
    /// The modules that lie in it itself: no other is one.
    ModulesOnly,
}

/// Looks through all that is private. Our own files have two names for a moment while they are made, so what was found
/// counts if a second look finds it too.
pub(super) fn private(places: &[Place]) -> Exposed {
    let (mut found, mut has_more) = once(places);
    if !found.is_empty() {
        let (again, has_more_still) = once(places);
        found.retain(|identity, _| again.contains_key(identity));
        has_more |= has_more_still;
    }
    Exposed::of(found, has_more)
}

fn once(places: &[Place]) -> (BTreeMap<Identity, String>, bool) {
    let mut walk = Walk { left: MAX_PRIVATE_ENTRIES, ..Walk::default() };
    for (number, place) in places.iter().enumerate() {
        if place.is_read_only() {
            continue;
        }
        let path = handle_path(place.as_fd());
        let Ok(metadata) = std::fs::metadata(&path) else { continue };
        let takes = |metadata: &Metadata| place.takes(metadata.uid());
        if metadata.is_dir() {
            let depth = if place.kind == Kind::Modules { Depth::ModulesOnly } else { Depth::Whole };
            walk.enter(&path, number, depth, takes);
        } else if takes(&metadata) {
            walk.note(&metadata, number, PathBuf::new);
        }
    }
    let outside = walk.names.into_iter().filter(|(_, seen)| seen.links > seen.paths);
    let named = outside.map(|(identity, seen)| (identity, places[seen.place].name(&seen.first)));
    (named.collect(), walk.has_more)
}

impl Walk {
    pub(super) fn enter(
        &mut self,
        root: &Path,
        place: usize,
        depth: Depth,
        takes: impl Fn(&Metadata) -> bool,
    ) {
        let mut folders = vec![root.to_path_buf()];
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                if self.left == 0 {
                    self.has_more = true;
                    return;
                }
                self.left -= 1;
                if depth == Depth::ModulesOnly && !entry.file_name().to_string_lossy().ends_with(MODULE) {
                    continue;
                }
                // Of the entry itself, not of what a link leads to.
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    if depth == Depth::Whole {
                        folders.push(entry.path());
                    }
                } else if takes(&metadata) {
                    let below = || entry.path().strip_prefix(root).map(PathBuf::from).unwrap_or_default();
                    self.note(&metadata, place, below);
                }
            }
        }
    }

    fn note(&mut self, metadata: &Metadata, place: usize, path: impl FnOnce() -> PathBuf) {
        if metadata.is_file() && metadata.nlink() > 1 {
            let seen = self.names.entry((metadata.dev(), metadata.ino()));
            let seen =
                seen.or_insert_with(|| Seen { links: metadata.nlink(), paths: 0, first: path(), place });
            seen.paths += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{fs, sync::Arc};

    use rustix::fs::Stat;

    use super::*;
    use crate::links::{PrivatePaths, Suspect};

    fn stat(path: &Path) -> Stat {
        rustix::fs::stat(path).expect("there")
    }

    fn world() -> (tempfile::TempDir, PrivatePaths) {
        let dir = tempfile::tempdir().expect("a folder");
        for folder in ["vault", "state", "modules", "shared"] {
            fs::create_dir_all(dir.path().join(folder).join("deep")).expect("made");
        }
        fs::write(dir.path().join("policy.toml"), "p").expect("written");
        let at = |name: &str| Some(dir.path().join(name));
        let paths = PrivatePaths {
            state: at("state"),
            policy: at("policy.toml"),
            modules: at("modules"),
            overlay: at("overlay.toml"),
        };
        (dir, paths)
    }

    fn opened(dir: &Path, paths: &PrivatePaths) -> Vec<Place> {
        let flags = rustix::fs::OFlags::PATH;
        let vault = rustix::fs::open(dir.join("vault"), flags, rustix::fs::Mode::empty()).expect("opens");
        paths.open(Some(Arc::new(vault)))
    }

    #[test]
    fn a_private_file_is_exposed_by_a_name_outside_and_not_by_one_inside() {
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
        ] {
            if !at(file).exists() {
                fs::write(at(file), "x").expect("written");
            }
            fs::hard_link(at(file), at("shared/innocent")).expect("linked");
            let found = private(&places);
            assert_eq!(found.suspects(&stat(&at("shared/innocent"))), Some(Suspect::Private), "{file}");
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
        // As cargo leaves them: what it built, linked from a folder further down.
        for name in ["deps.d", "deep/own.wasm"] {
            fs::write(at("modules").join(name), "x").expect("written");
            fs::hard_link(at("modules").join(name), at("shared").join(name)).expect("linked");
        }
        assert_eq!(private(&places).suspects_any(), None);
    }

    #[test]
    fn what_the_overlay_leads_to_is_not_private_and_names_may_change() {
        let (dir, paths) = world();
        let at = |name: &str| dir.path().join(name);
        fs::write(at("shared/a"), "a").expect("written");
        fs::hard_link(at("shared/a"), at("outside")).expect("linked");
        std::os::unix::fs::symlink(at("shared"), at("overlay.toml")).expect("linked");
        let places = opened(dir.path(), &paths);
        // The state folder's name is another's now; its handle leads where it led.
        fs::write(at("state/log"), "x").expect("written");
        fs::hard_link(at("state/log"), at("shared/log")).expect("linked");
        fs::rename(at("state"), at("moved")).expect("renamed");
        std::os::unix::fs::symlink(at("shared"), at("state")).expect("linked");
        let found = private(&places);
        assert_eq!(found.suspects(&stat(&at("shared/a"))), None);
        assert_eq!(found.suspects(&stat(&at("shared/log"))), Some(Suspect::Private));
    }
}
