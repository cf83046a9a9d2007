//! The hard-link report for `doctor`: files in the mounts, and private files, that have a name elsewhere.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{
    FileIdentity, MAX_NAMED, PrivateLinks, UnknownReason,
    place::handle_path,
    walk::{CountedFiles, FolderWalk},
};
use crate::mounts::MountTable;

/// Limit of entries examined in all mounts together: 200,000.
const MAX_EXAMINED_ENTRIES: usize = 200_000;

/// Time limit of the whole examination: 30 s. A file system may not respond at all.
const EXAMINE_TIME: Duration = Duration::from_secs(30);

/// Hard links that `doctor` found in the mounts.
#[derive(Debug, Default)]
pub struct LinkReport {
    /// Files with a name in one mount and another in a different mount or outside all mounts: the guest path
    /// with an explanation. At most 20.
    pub found: Vec<String>,
    /// How many further files there are.
    pub left_out: usize,
    /// Whether the mounts had more entries than the limit.
    pub has_more: bool,
    /// Whether a file of the vault, the state folder, a module or the policy has a name elsewhere; if so, no
    /// command runs.
    pub is_private_exposed: bool,
    /// Those files, by their private names. At most 20.
    pub private: Vec<String>,
    /// How many further files there are.
    pub private_left_out: usize,
    /// Why this could not be determined; if set, no command runs.
    pub unknown: Option<String>,
}

/// Searches all mounts for files that also have names elsewhere. Bounded in entries and time. It blocks, so
/// it must not run on the path of a call.
#[must_use]
pub fn examine_links(mounts: &MountTable) -> LinkReport {
    let private = mounts.private_links().clone();
    let mounts = mounts.iter().map(|mount| (mount.name().to_string(), Arc::clone(mount.directory())));
    let mounts: Vec<_> = mounts.collect();
    let (sender, answer) = mpsc::channel();
    let thread = std::thread::Builder::new().name("examine-links".to_owned());
    // A caller that timed out no longer receives the answer.
    let begun = thread.spawn(move || {
        let _unheard = sender.send(examine(&private, &mounts));
    });
    let report = begun.ok().and_then(|_detached| answer.recv_timeout(EXAMINE_TIME).ok());
    report.unwrap_or_else(|| LinkReport {
        has_more: true,
        unknown: Some(UnknownReason::Overdue.hint()),
        ..LinkReport::default()
    })
}

fn examine(private: &PrivateLinks, mounts: &[(String, Arc<OwnedFd>)]) -> LinkReport {
    let exposed = private.search_now();
    let mut report = LinkReport {
        is_private_exposed: !exposed.named().is_empty(),
        private: exposed.named().to_vec(),
        private_left_out: exposed.unnamed(),
        unknown: exposed.unknown.map(UnknownReason::hint),
        ..LinkReport::default()
    };
    let mut files: BTreeMap<FileIdentity, (u64, Vec<(String, u64)>)> = BTreeMap::new();
    let mut left = MAX_EXAMINED_ENTRIES;
    for (number, (name, directory)) in mounts.iter().enumerate() {
        let mut walk = FolderWalk { left, ..FolderWalk::default() };
        walk.enter(&handle_path(directory.as_fd()), number, CountedFiles::All, |_| true);
        (left, report.has_more) = (walk.left, report.has_more || walk.has_more);
        for (identity, seen) in walk.names {
            let (links, paths) = files.entry(identity).or_default();
            *links = seen.links;
            paths.push((format!("/{name}/{}", seen.first.display()), seen.paths));
        }
    }
    for (links, paths) in files.into_values() {
        let inside: u64 = paths.iter().map(|(_, count)| count).sum();
        let names: Vec<&str> = paths.iter().map(|(path, _)| path.as_str()).collect();
        let description = match (names.as_slice(), links > inside) {
            ([one], true) => format!("{one} has {} name(s) outside of its mount", links - inside),
            ([_, _, ..], _) => format!("{} are one file", names.join(" and ")),
            _ => continue,
        };
        if report.found.len() < MAX_NAMED {
            report.found.push(description);
        } else {
            report.left_out += 1;
        }
    }
    report
}
