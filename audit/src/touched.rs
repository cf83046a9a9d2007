//! The accesses of a call to its mounts, as a row lists them.

use serde::{Deserialize, Serialize};

use super::{
    row::{
        SharedText,
        write::{MAX_NAME_BYTES, field_number},
    },
    text::push_string,
};

/// How often a call accessed a mount, by kind of access. Only successful operations count.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TouchedMount {
    /// The mount's name.
    pub mount: SharedText,
    /// Files and folders that were opened for reading.
    pub read: u64,
    /// Existing files that were opened for writing, and names whose times were changed.
    pub written: u64,
    /// Names that were created: files, folders, symlinks, and the new name of a moved file.
    pub created: u64,
    /// Names that were removed: deleted files and folders, and the old name of a moved file.
    pub removed: u64,
}

/// Writes one entry of the row's list of accessed mounts.
pub(super) fn push_touched(out: &mut Vec<u8>, touched: &TouchedMount) {
    out.extend_from_slice(b"{\"mount\":");
    push_string(out, &touched.mount, MAX_NAME_BYTES);
    for (key, count) in [
        ("read", touched.read),
        ("written", touched.written),
        ("created", touched.created),
        ("removed", touched.removed),
    ] {
        field_number(out, key, Some(count));
    }
    out.push(b'}');
}
