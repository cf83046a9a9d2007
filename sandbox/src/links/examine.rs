//! What `doctor` asks: which files in the mounts, and which private ones, have a name elsewhere.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{
    Identity, MAX_NAMED, PrivateLinks, Unknown,
    place::handle_path,
    walk::{Counted, Walk},
};
use crate::mounts::MountTable;

/// How many entries of all mounts are looked at: 200,000.
const MAX_EXAMINED_ENTRIES: usize = 200_000;

/// How long all of it may take: 30 s. A file system may not answer at all.
const EXAMINE_TIME: Duration = Duration::from_secs(30);

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
    /// Whether a file of the vault, the state folder, a module or the policy has a name elsewhere: no command runs
    /// then.
    pub is_private_exposed: bool,
    /// Those files, by the names that they have at home. At most 20.
    pub private: Vec<String>,
    /// How many there are besides.
    pub private_left_out: usize,
    /// Why that cannot be told: no command runs then.
    pub unknown: Option<String>,
}

/// Looks through all mounts for files that have names elsewhere too. Bounded in number and time, and nothing for the
/// way of a call. It blocks.
#[must_use]
pub fn examine_links(mounts: &MountTable) -> LinkReport {
    let private = mounts.private_links().clone();
    let mounts = mounts.iter().map(|mount| (mount.name().to_string(), Arc::clone(mount.directory())));
    let mounts: Vec<_> = mounts.collect();
    let (sender, answer) = mpsc::channel();
    let thread = std::thread::Builder::new().name("examine-links".to_owned());
    // A caller that gave up has no use for the answer.
    let begun = thread.spawn(move || {
        let _unheard = sender.send(examine(&private, &mounts));
    });
    let report = begun.ok().and_then(|_detached| answer.recv_timeout(EXAMINE_TIME).ok());
    report.unwrap_or_else(|| LinkReport {
        has_more: true,
        unknown: Some(Unknown::Overdue.hint()),
        ..LinkReport::default()
    })
}

fn examine(private: &PrivateLinks, mounts: &[(String, Arc<OwnedFd>)]) -> LinkReport {
    let exposed = private.look();
    let mut report = LinkReport {
        is_private_exposed: !exposed.named().is_empty(),
        private: exposed.named().to_vec(),
        private_left_out: exposed.unnamed(),
        unknown: exposed.unknown.map(Unknown::hint),
        ..LinkReport::default()
    };
    let mut files: BTreeMap<Identity, (u64, Vec<(String, u64)>)> = BTreeMap::new();
    let mut left = MAX_EXAMINED_ENTRIES;
    for (number, (name, directory)) in mounts.iter().enumerate() {
        let mut walk = Walk { left, ..Walk::default() };
        walk.enter(&handle_path(directory.as_fd()), number, Counted::All, |_| true);
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
