//! Hard links: other names of a file, which neither a path nor a handle shows. A mount may contain a name of
//! a file of the vault, the state folder, a module or the operator's policy; an attacker who planted it could
//! reach that file.
//!
//! Two rules follow. A guest changes no file in place that has more than one name (`fs.rs`). And a private
//! file with a name outside cannot be read under that name. Such files are searched among the private places,
//! which are small, rather than in the mounts. `search.rs` decides when to search, `walk.rs` searches, and
//! `examine.rs` reports for `doctor`.

mod examine;
mod place;
mod search;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rustix::fs::Stat;

pub use examine::{LinkReport, examine_links};
pub use place::PrivatePaths;
pub use search::PrivateLinks;

/// Limit of private entries that are searched: 200,000. In a larger vault the search is incomplete, so any
/// file with several names counts as possibly private.
const MAX_PRIVATE_ENTRIES: usize = 200_000;

/// Limit of files that are named, to a model and by `doctor`.
const MAX_NAMED: usize = 20;

/// Advice for a file that is not changed in place.
pub const REPLACE: &str = "a change would show under its other names too, wherever they are; replace it whole, as \
     `file_write` with `overwrite` and `file_edit` do, or make it anew";

/// Explanation for a private file under another name.
pub const PRIVATE: &str =
    "it is a file of the vault, of the state folder, of a module or of the policy under another name";

/// Identity of a file, independent of its names: device and inode.
type FileIdentity = (u64, u64);

/// The private files found to have a name outside the private places.
#[derive(Debug, Default)]
pub struct ExposedFiles {
    files: BTreeSet<FileIdentity>,
    /// Some of them, as shown to a person or a model.
    named: Vec<String>,
    unknown: Option<UnknownReason>,
}

/// Why the search could not tell which private files have a name elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum UnknownReason {
    /// There are more entries than the limit.
    TooMany,
    /// A search did not end in time.
    Overdue,
    /// A part of it could not be read.
    Unreadable,
}

/// Why a file with several names is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkSuspicion {
    /// It is a private file.
    Private,
    /// It may be a private file.
    Unknown(UnknownReason),
}

impl ExposedFiles {
    /// The suspicion against a file; only a file with several names can be suspect.
    pub fn suspects(&self, stat: &Stat) -> Option<LinkSuspicion> {
        if stat.st_nlink <= 1 {
            return None;
        }
        if self.files.contains(&(stat.st_dev, stat.st_ino)) {
            return Some(LinkSuspicion::Private);
        }
        self.unknown.map(LinkSuspicion::Unknown)
    }

    /// The suspicion against some file of a mount: any mount may contain a name of a private file.
    pub fn suspects_any(&self) -> Option<LinkSuspicion> {
        if self.files.is_empty() {
            self.unknown.map(LinkSuspicion::Unknown)
        } else {
            Some(LinkSuspicion::Private)
        }
    }

    /// Some of the files, by their private names: at most 20.
    #[must_use]
    pub fn named(&self) -> &[String] {
        &self.named
    }

    /// How many further files there are.
    #[must_use]
    pub fn unnamed(&self) -> usize {
        self.files.len() - self.named.len()
    }

    fn unknown(why: UnknownReason) -> Self {
        Self { unknown: Some(why), ..Self::default() }
    }

    fn of(found: BTreeMap<FileIdentity, String>, unknown: Option<UnknownReason>) -> Self {
        let files = found.keys().copied().collect();
        let named = found.into_values().take(MAX_NAMED).collect();
        Self { files, named, unknown }
    }
}

impl UnknownReason {
    /// The reason and the remedy, for a model and a person.
    #[must_use]
    pub fn hint(self) -> String {
        match self {
            Self::TooMany => format!(
                "vault, state folder and modules have more than {MAX_PRIVATE_ENTRIES} entries, so not all of them were \
                 searched; an operator keeps fewer there"
            ),
            Self::Overdue => format!(
                "vault, state folder and modules could not be searched within {} s; try again later, and let an \
                 operator see whether their file systems answer",
                FIRST_SEARCH_WAIT.as_secs()
            ),
            Self::Unreadable => {
                "vault, state folder and modules could not be searched; an operator sees whether \
                                 they are still there, and whether this process has descriptors left"
                    .to_owned()
            }
        }
    }
}

/// How long a call waits for a search while the last result can stand in.
const SEARCH_WAIT: Duration = Duration::from_secs(1);

/// How long calls wait for a search while no result can stand in: the first search, or the first in a long
/// time.
const FIRST_SEARCH_WAIT: Duration = Duration::from_secs(10);
