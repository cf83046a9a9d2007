//! Hard links: further names of a file, which neither a path nor a handle shows. A mount may contain a name
//! of a file of the vault, the state folder, a module or the operator's policy. An attacker who planted
//! such a name could reach that file.
//!
//! Two rules follow. A guest never changes a file in place that has more than one name (`fs.rs`). A private
//! file that has a name outside its private folder cannot be read under that name. The search for such
//! files scans the private folders, which are small, and not the mounts. `search.rs` decides when to
//! search, `walk.rs` searches, and `examine.rs` reports for `doctor`.

mod examine;
mod private;
mod search;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rustix::fs::Stat;

pub use examine::{HardLinkReport, examine_hard_links};
pub use private::PrivatePaths;
pub use search::PrivateHardLinks;

/// The maximum number of private entries that are searched: 200,000. In a larger vault the search is incomplete, so any
/// file with several names counts as possibly private.
const MAX_PRIVATE_ENTRIES: usize = 200_000;

/// The maximum number of files that are named to a model and by `doctor`.
const MAX_NAMED: usize = 20;

/// Advice for a file that must not be changed in place.
pub const REPLACE: &str = "a change in place would appear under all its names, wherever they are; replace the whole file, as \
     `file_write` with `overwrite` and `file_edit` do, or recreate it";

/// Explanation for a private file under another name.
pub const PRIVATE: &str =
    "it is a file of the vault, of the state folder, of a module or of the policy under another name";

/// The identity of a file, independent of its names: device and inode.
type FileIdentity = (u64, u64);

/// The private files that were found to have a name outside the private places.
#[derive(Debug, Default)]
pub struct ExposedFiles {
    files: BTreeSet<FileIdentity>,
    /// The private names of some of the files, in the form shown to a person or a model.
    names: Vec<String>,
    search_fault: Option<HardLinkSearchFault>,
}

/// The reason why the search could not determine which private files have a name elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLinkSearchFault {
    /// There are more entries than the limit.
    TooMany,
    /// A search did not end in time.
    Overdue,
    /// A part of the private folders could not be read.
    Unreadable,
}

/// The reason why a file with several names is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HardLinkSuspicion {
    /// The file is a private file.
    Private,
    /// The file may be a private file, for this reason.
    Unknown(HardLinkSearchFault),
}

impl ExposedFiles {
    /// Returns the suspicion against a file. Only a file with several names can be suspect.
    pub fn suspicion_of(&self, stat: &Stat) -> Option<HardLinkSuspicion> {
        if stat.st_nlink <= 1 {
            return None;
        }
        if self.files.contains(&(stat.st_dev, stat.st_ino)) {
            return Some(HardLinkSuspicion::Private);
        }
        self.search_fault.map(HardLinkSuspicion::Unknown)
    }

    /// Returns the suspicion against the files of any mount, because any mount can contain a name of a
    /// private file.
    pub fn suspects_any(&self) -> Option<HardLinkSuspicion> {
        if self.files.is_empty() {
            self.search_fault.map(HardLinkSuspicion::Unknown)
        } else {
            Some(HardLinkSuspicion::Private)
        }
    }

    /// Returns the private names of some of the files, at most 20.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    /// Returns the number of further files, which are not named.
    #[must_use]
    pub fn unnamed_count(&self) -> usize {
        self.files.len() - self.names.len()
    }

    fn unknown(why: HardLinkSearchFault) -> Self {
        Self { search_fault: Some(why), ..Self::default() }
    }

    fn new(exposed_names: BTreeMap<FileIdentity, String>, unknown: Option<HardLinkSearchFault>) -> Self {
        let files = exposed_names.keys().copied().collect();
        let names = exposed_names.into_values().take(MAX_NAMED).collect();
        Self { files, names, search_fault: unknown }
    }
}

impl HardLinkSearchFault {
    /// Returns the reason and the remedy, for a model or a person.
    #[must_use]
    pub fn hint(self) -> String {
        match self {
            Self::TooMany => format!(
                "vault, state folder and modules have more than {MAX_PRIVATE_ENTRIES} entries, so the search was \
                 incomplete; ask the operator to remove entries"
            ),
            Self::Overdue => format!(
                "vault, state folder and modules could not be searched within {} s; try again later, or ask the \
                 operator to check that their file systems respond",
                FIRST_SEARCH_TIMEOUT.as_secs()
            ),
            Self::Unreadable => "vault, state folder and modules could not be searched; ask the operator to \
                 check that they exist and that this process has free file descriptors"
                .to_owned(),
        }
    }
}

/// How long a call waits for a search while the last result is still usable.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(1);

/// How long calls wait for a search if no result is usable: for the first search, or the first one in a
/// long time.
const FIRST_SEARCH_TIMEOUT: Duration = Duration::from_secs(10);
