//! Hard links: other names of a file, which no path and no handle shows. A mount may hold a name of a file of the
//! vault, of the state folder, of a policy; who planted it there could reach both.
//!
//! Two rules follow. A guest changes no file in place that has more than one name (`wasm/fs.rs`). And a private file
//! with a name outside is read by nobody under that name: it is looked for in what is private, which is small, and not
//! in the mounts, which are not.

use std::{
    collections::BTreeMap,
    fs::Metadata,
    os::{
        fd::{AsFd, AsRawFd as _, OwnedFd},
        unix::fs::MetadataExt as _,
    },
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use rustix::fs::{Stat, StatVfsMountFlags};

use crate::mounts::MountTable;

/// How many entries of what is private are looked at. A larger vault counts as one that any link may lead to.
const MAX_PRIVATE_ENTRIES: usize = 20_000;

/// How old a look may be that a call goes by, where looking is quick.
const FRESH: Duration = Duration::from_secs(1);

/// Of the time, no more than one part in so many is spent on looking.
const MAX_SHARE: u32 = 50;

/// How many entries of all mounts `doctor` looks at.
const MAX_EXAMINED_ENTRIES: usize = 200_000;

/// How many links `doctor` names.
const MAX_NAMED: usize = 20;

/// What may be done where a file is not changed in place.
pub(crate) const REPLACE: &str = "a change would show under its other names too, wherever they are; replace it whole, as \
     `file_write` with `overwrite` and `file_edit` do, or make it anew";

/// What is said of a private file under another name.
pub(crate) const PRIVATE: &str =
    "it is a file of the vault, of the state folder or of the policy under another name";

/// A file, whatever its names: device and inode.
type Identity = (u64, u64);

/// Looks for private files that have names elsewhere, again and again.
#[derive(Debug, Default)]
pub(crate) struct PrivateLinks {
    vault: Option<Arc<OwnedFd>>,
    private: Vec<PathBuf>,
    last: Mutex<Option<Last>>,
}

/// The last look.
#[derive(Debug)]
struct Last {
    /// Until when calls go by it.
    until: Instant,
    found: Arc<Exposed>,
}

/// The private files that have a name outside of what is private, as far as was looked.
#[derive(Debug, Default)]
pub(crate) struct Exposed {
    files: Vec<Identity>,
    /// There was more than is looked at: any file with several names may be one.
    has_more: bool,
}

impl PrivateLinks {
    pub(crate) fn new(vault: Option<Arc<OwnedFd>>, private: Vec<PathBuf>) -> Self {
        Self { vault, private, last: Mutex::default() }
    }

    /// What a look finds now, or found a moment ago.
    pub(crate) fn exposed(&self) -> Arc<Exposed> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        match &*last {
            Some(Last { until, found }) if Instant::now() < *until => Arc::clone(found),
            _ => {
                let before = Instant::now();
                let found = Arc::new(self.look());
                let until = Instant::now() + FRESH.max(before.elapsed() * MAX_SHARE);
                *last = Some(Last { until, found: Arc::clone(&found) });
                found
            }
        }
    }

    fn look(&self) -> Exposed {
        let mut walk = Walk { left: MAX_PRIVATE_ENTRIES, ..Walk::default() };
        let vault = self.vault.as_deref().map(handle_path);
        for place in vault.iter().chain(&self.private) {
            walk.enter(place);
        }
        let outside = walk.names.into_iter().filter(|(_, seen)| seen.links > seen.paths);
        Exposed { files: outside.map(|(identity, _)| identity).collect(), has_more: walk.has_more }
    }
}

impl Exposed {
    /// Whether a file may be one of them.
    pub(crate) fn has(&self, stat: &Stat) -> bool {
        stat.st_nlink > 1 && (self.has_more || self.files.contains(&(stat.st_dev, stat.st_ino)))
    }

    /// Whether there are any for certain.
    pub(crate) fn is_any(&self) -> bool {
        !self.files.is_empty()
    }
}

/// What `doctor` finds of hard links in the mounts.
#[derive(Debug, Default)]
pub struct LinkReport {
    /// Files with a name in one mount and another in another mount or in none: guest path, and what is said of it. At
    /// most 20.
    pub found: Vec<String>,
    /// How many there are besides.
    pub left_out: usize,
    /// Whether there was more in the mounts than is looked at.
    pub has_more: bool,
    /// Whether a file of the vault, the state folder or a policy has a name elsewhere: no command runs then.
    pub is_private_exposed: bool,
}

/// Looks through all mounts for files that have names elsewhere too. Bounded, and nothing for the way of a call.
#[must_use]
pub fn examine_links(mounts: &MountTable) -> LinkReport {
    let mut report =
        LinkReport { is_private_exposed: mounts.private_links().look().is_any(), ..LinkReport::default() };
    let mut files: BTreeMap<Identity, (u64, Vec<(String, u64)>)> = BTreeMap::new();
    let mut left = MAX_EXAMINED_ENTRIES;
    for mount in mounts.iter() {
        let root = handle_path(mount.directory());
        let mut walk = Walk { left, ..Walk::default() };
        walk.enter(&root);
        (left, report.has_more) = (walk.left, report.has_more || walk.has_more);
        for (identity, seen) in walk.names {
            let below = seen.first.strip_prefix(&root).unwrap_or(&seen.first).display().to_string();
            let (links, paths) = files.entry(identity).or_default();
            *links = seen.links;
            paths.push((format!("/{}/{below}", mount.name()), seen.paths));
        }
    }
    for (links, paths) in files.into_values() {
        let inside: u64 = paths.iter().map(|(_, count)| count).sum();
        let names: Vec<&str> = paths.iter().map(|(path, _)| path.as_str()).collect();
        let said = match (names.as_slice(), links > inside) {
            ([one], true) => format!("{one} has {} name(s) outside of its mount", links - inside),
            ([_, _, ..], _) => format!("{} are one file", names.join(" and ")),
            _ => continue,
        };
        if report.found.len() < MAX_NAMED {
            report.found.push(said);
        } else {
            report.left_out += 1;
        }
    }
    report
}

/// Looks at what lies in folders, without following links.
#[derive(Debug, Default)]
struct Walk {
    /// Files with several names.
    names: BTreeMap<Identity, Seen>,
    left: usize,
    has_more: bool,
}

#[derive(Debug)]
struct Seen {
    links: u64,
    /// How many of them were met.
    paths: u64,
    first: PathBuf,
}

impl Walk {
    fn enter(&mut self, place: &Path) {
        // The handle's name below `/proc` is a link to the folder, and what an operator names may be one as well.
        let Ok(metadata) = std::fs::metadata(place) else { return };
        if metadata.is_file() && may_change(place, &metadata) {
            self.note(place, &metadata);
        }
        let mut folders = if metadata.is_dir() { vec![place.to_owned()] } else { Vec::new() };
        while let Some(folder) = folders.pop() {
            let Ok(entries) = std::fs::read_dir(&folder) else { continue };
            for entry in entries.flatten() {
                if self.left == 0 {
                    self.has_more = true;
                    return;
                }
                self.left -= 1;
                // Of the entry itself, not of what a link leads to.
                let Ok(metadata) = entry.metadata() else { continue };
                if metadata.is_dir() {
                    folders.push(entry.path());
                } else {
                    self.note(&entry.path(), &metadata);
                }
            }
        }
    }

    fn note(&mut self, path: &Path, metadata: &Metadata) {
        if metadata.is_file() && metadata.nlink() > 1 {
            let identity = (metadata.dev(), metadata.ino());
            let seen = self.names.entry(identity);
            let seen =
                seen.or_insert_with(|| Seen { links: metadata.nlink(), paths: 0, first: path.to_owned() });
            seen.paths += 1;
        }
    }
}

/// Whether we could change a policy file. Systems whose files are all links into a store have it where nobody can.
fn may_change(file: &Path, metadata: &Metadata) -> bool {
    let is_read_only =
        rustix::fs::statvfs(file).is_ok_and(|found| found.f_flag.contains(StatVfsMountFlags::RDONLY));
    metadata.uid() == rustix::process::geteuid().as_raw() && !is_read_only
}

/// A path to an open folder that leads there whatever becomes of its name.
fn handle_path(handle: &OwnedFd) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}/", handle.as_fd().as_raw_fd()))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn stat(path: &Path) -> Stat {
        rustix::fs::stat(path).expect("there")
    }

    #[test]
    fn a_private_file_is_exposed_by_a_name_outside_and_not_by_one_inside() {
        let dir = tempfile::tempdir().expect("a folder");
        let (vault, state, shared) =
            (dir.path().join("vault"), dir.path().join("state"), dir.path().join("shared"));
        for folder in [&vault, &state, &shared] {
            fs::create_dir_all(folder.join("deep")).expect("made");
        }
        fs::write(vault.join("deep/key"), "k").expect("written");
        fs::hard_link(vault.join("deep/key"), vault.join("again")).expect("linked");
        fs::write(shared.join("a"), "a").expect("written");
        fs::hard_link(shared.join("a"), shared.join("b")).expect("linked");
        let handle =
            rustix::fs::open(&vault, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).expect("opens");
        let links =
            PrivateLinks::new(Some(Arc::new(handle)), vec![state.clone(), dir.path().join("missing")]);
        assert!(!links.look().is_any());
        fs::hard_link(vault.join("again"), shared.join("innocent")).expect("linked");
        let found = links.look();
        assert!(found.is_any() && found.has(&stat(&shared.join("innocent"))));
        assert!(!found.has(&stat(&shared.join("a"))));
        fs::remove_file(shared.join("innocent")).expect("removed");
        assert!(!links.look().is_any());
        fs::write(state.join("audit.jsonl"), "").expect("written");
        fs::hard_link(state.join("audit.jsonl"), shared.join("log")).expect("linked");
        assert!(links.look().has(&stat(&shared.join("log"))));
    }
}
