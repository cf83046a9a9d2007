//! Hard links: other names of a file, which no path and no handle shows. A mount may hold a name of a file of the
//! vault, of the state folder, of a module or of the operator's policy; who planted it there could reach both.
//!
//! Two rules follow. A guest changes no file in place that has more than one name (`fs.rs`). And a private file
//! with a name outside is read by nobody under that name: it is looked for in what is private, which is small, and not
//! in the mounts, which are not. `look.rs` says when that is done, `walk.rs` how, `examine.rs` what `doctor` asks.

mod examine;
mod look;
mod place;
mod walk;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use rustix::fs::Stat;

pub use examine::{LinkReport, examine_links};
pub use look::PrivateLinks;
pub use place::PrivatePaths;

/// How many entries of what is private are looked at: 200,000. Of a larger vault it cannot be told what has a name
/// elsewhere, so that any file with several names may be one of its files.
const MAX_PRIVATE_ENTRIES: usize = 200_000;

/// How many files are named, to a model and by `doctor`.
const MAX_NAMED: usize = 20;

/// What may be done where a file is not changed in place.
pub const REPLACE: &str = "a change would show under its other names too, wherever they are; replace it whole, as \
     `file_write` with `overwrite` and `file_edit` do, or make it anew";

/// What is said of a private file under another name.
pub const PRIVATE: &str =
    "it is a file of the vault, of the state folder, of a module or of the policy under another name";

/// A file, whatever its names: device and inode.
type Identity = (u64, u64);

/// The private files that have a name outside of what is private, as far as was looked.
#[derive(Debug, Default)]
pub struct Exposed {
    files: BTreeSet<Identity>,
    /// Some of them, as a person or a model may read of them.
    named: Vec<String>,
    unknown: Option<Unknown>,
}

/// Why it cannot be told which private files have a name elsewhere.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unknown {
    /// There is more than is looked at.
    TooMany,
    /// A look has not ended in its time.
    Overdue,
    /// Something of it could not be looked at.
    Unreadable,
}

/// Why a file with several names is not touched.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Suspect {
    /// It is a private one.
    Private,
    /// It may be one.
    Unknown(Unknown),
}

impl Exposed {
    /// What a file is suspected of; only one with several names is.
    pub fn suspects(&self, stat: &Stat) -> Option<Suspect> {
        if stat.st_nlink <= 1 {
            return None;
        }
        if self.files.contains(&(stat.st_dev, stat.st_ino)) {
            return Some(Suspect::Private);
        }
        self.unknown.map(Suspect::Unknown)
    }

    /// What any file of a mount is suspected of: there may be a name in it of each of these.
    pub fn suspects_any(&self) -> Option<Suspect> {
        if self.files.is_empty() { self.unknown.map(Suspect::Unknown) } else { Some(Suspect::Private) }
    }

    /// Some of them, by the names that they have at home: at most 20.
    #[must_use]
    pub fn named(&self) -> &[String] {
        &self.named
    }

    /// How many there are that are not named.
    #[must_use]
    pub fn unnamed(&self) -> usize {
        self.files.len() - self.named.len()
    }

    fn unknown(why: Unknown) -> Self {
        Self { unknown: Some(why), ..Self::default() }
    }

    fn of(found: BTreeMap<Identity, String>, unknown: Option<Unknown>) -> Self {
        let files = found.keys().copied().collect();
        let named = found.into_values().take(MAX_NAMED).collect();
        Self { files, named, unknown }
    }
}

impl Unknown {
    /// Why, and what would be right, in words for a model and a person.
    #[must_use]
    pub fn hint(self) -> String {
        match self {
            Self::TooMany => format!(
                "vault, state folder and modules have more than {MAX_PRIVATE_ENTRIES} entries, so not all of them were \
                 looked at; an operator keeps fewer there"
            ),
            Self::Overdue => format!(
                "vault, state folder and modules could not be looked through within {} s; try again later, and let an \
                 operator see whether their file systems answer",
                FIRST_LOOK_WAIT.as_secs()
            ),
            Self::Unreadable => {
                "vault, state folder and modules could not be looked through; an operator sees whether \
                                 they are still there, and whether this process has descriptors left"
                    .to_owned()
            }
        }
    }
}

/// How long a call waits for a look for which the last one can stand in.
const LOOK_WAIT: Duration = Duration::from_secs(1);

/// How long calls wait for a look for which no other can stand in, since it is the first one, or the first for long.
const FIRST_LOOK_WAIT: Duration = Duration::from_secs(10);
