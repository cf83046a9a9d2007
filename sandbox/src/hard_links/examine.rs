//! The report on hard links for `doctor`: files in the mounts, and private files, that have a name elsewhere.

use std::{
    collections::BTreeMap,
    os::fd::{AsFd as _, OwnedFd},
    sync::{Arc, mpsc},
    time::Duration,
};

use super::{
    FileIdentity, HardLinkSearchFault, MAX_NAMED, PrivateHardLinks,
    private::handle_path,
    walk::{CountedFiles, FolderWalk},
};
use crate::mounts::MountTable;

/// The maximum number of entries that are examined in all mounts together: 200,000.
const MAX_EXAMINED_ENTRIES: usize = 200_000;

/// Timeout of the whole examination: 30 s. A file system may not respond at all.
const EXAMINE_TIMEOUT: Duration = Duration::from_secs(30);

/// The hard links that `doctor` found.
#[derive(Debug, Default)]
pub struct HardLinkReport {
    /// Files with one name in a mount and another name in another mount or outside all mounts. Each entry
    /// is the guest path with an explanation. At most 20.
    pub shared_files: Vec<String>,
    /// The number of further files.
    pub shared_files_omitted: usize,
    /// Whether the mounts had more entries than the limit.
    pub has_more: bool,
    /// Whether a file of the vault, the state folder, a module or the policy has a name elsewhere. If so, no command
    /// runs.
    pub is_private_exposed: bool,
    /// The private names of these files. At most 20.
    pub private_files: Vec<String>,
    /// The number of further private files.
    pub private_files_omitted: usize,
    /// Why the private files could not be determined. If set, no command runs.
    pub search_fault: Option<String>,
}

/// Searches all mounts for files that also have names elsewhere, with limits on entries and time. The
/// search blocks, so it must not run during a call.
#[must_use]
pub fn examine_hard_links(mounts: &MountTable) -> HardLinkReport {
    let private = mounts.private_links().clone();
    let mounts = mounts.iter().map(|mount| (mount.name().to_string(), Arc::clone(mount.directory())));
    let mounts: Vec<_> = mounts.collect();
    let (sender, answer) = mpsc::channel();
    let thread = std::thread::Builder::new().name("examine-links".to_owned());
    // After a timeout the receiver is gone, so a failed send is ignored.
    let spawned = thread.spawn(move || {
        let _unheard = sender.send(examine(&private, &mounts));
    });
    let report = spawned.ok().and_then(|_detached| answer.recv_timeout(EXAMINE_TIMEOUT).ok());
    report.unwrap_or_else(|| HardLinkReport {
        has_more: true,
        search_fault: Some(HardLinkSearchFault::Overdue.hint()),
        ..HardLinkReport::default()
    })
}

fn examine(private: &PrivateHardLinks, mounts: &[(String, Arc<OwnedFd>)]) -> HardLinkReport {
    let exposed = private.search_now();
    let mut report = HardLinkReport {
        is_private_exposed: !exposed.names().is_empty(),
        private_files: exposed.names().to_vec(),
        private_files_omitted: exposed.unnamed_count(),
        search_fault: exposed.search_fault.map(HardLinkSearchFault::hint),
        ..HardLinkReport::default()
    };
    let mut files: BTreeMap<FileIdentity, (u64, Vec<(String, u64)>)> = BTreeMap::new();
    let mut remaining_entries = MAX_EXAMINED_ENTRIES;
    for (number, (name, directory)) in mounts.iter().enumerate() {
        let mut walk = FolderWalk { remaining_entries, ..FolderWalk::default() };
        walk.enter(&handle_path(directory.as_fd()), number, CountedFiles::All, |_| true);
        (remaining_entries, report.has_more) = (walk.remaining_entries, report.has_more || walk.has_more);
        for (identity, file) in walk.files {
            let (link_count, paths) = files.entry(identity).or_default();
            *link_count = file.link_count;
            paths.push((format!("/{name}/{}", file.first_path.display()), file.found_count));
        }
    }
    for (link_count, paths) in files.into_values() {
        let inside_count: u64 = paths.iter().map(|(_, count)| count).sum();
        let names: Vec<&str> = paths.iter().map(|(path, _)| path.as_str()).collect();
        let description = match (names.as_slice(), link_count > inside_count) {
            ([only_name], true) => {
                format!("{only_name} has {} name(s) outside of its mount", link_count - inside_count)
            }
            ([_, _, ..], _) => format!("{} are one file", names.join(" and ")),
            // All names of the file are in one mount, which is harmless.
            _ => continue,
        };
        if report.shared_files.len() < MAX_NAMED {
            report.shared_files.push(description);
        } else {
            report.shared_files_omitted += 1;
        }
    }
    report
}
