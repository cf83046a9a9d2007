//! A guest of unit tests, without a module.

use std::{path::Path, sync::Arc};

use portcullis_policy::{HiddenNames, MountName, MountSpec, ProtectedPaths};
use portcullis_types::Access;

use super::{FIRST_PREOPEN, GuestFs, OpenIntent, Preopen};
use crate::{hard_links::PrivatePaths, mount_use::MountUse, mounts::MountTable, protection::Protection};

/// The descriptor of the directory that the guest of [`guest`] has opened.
pub(super) const OPENED: u32 = 9;

/// Creates a guest with the mount `shared`, which hides the names that fit `hidden`. The guest has opened the
/// directory `opened` of the mount as [`OPENED`].
pub(super) fn guest(workspace: &Path, access: Access, hidden: &[&str], opened: &str) -> GuestFs {
    let name = MountName::parse("shared").expect("a name");
    let spec = MountSpec { name, folder: "shared".to_owned(), has_undo: false };
    let mounts = MountTable::open(workspace, &[spec], &PrivatePaths::default()).expect("opens");
    let handle = mounts.get("shared").expect("the mount exists").clone();
    let protection = Protection {
        paths: Arc::new(ProtectedPaths::parse([]).expect("no patterns")),
        forbidden_kinds: None,
        hidden: Arc::new(HiddenNames::parse(hidden.iter().copied()).expect("patterns")),
    };
    let preopens = [Preopen { handle, access }].into();
    let mut guest = GuestFs::new(preopens, protection, Arc::default(), MountUse::new(1), None);
    let read = OpenIntent { follow: true, create: false, writes: false };
    let directory = guest.judge_open(FIRST_PREOPEN, opened, read).expect("allowed");
    guest.record_opened(OPENED, directory);
    guest
}
