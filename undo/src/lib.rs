//! Records the changes that calls make in mounts, so that a person can see and undo them.
//!
//! A [`ChangeRecorder`] belongs to one call. Before each change it stores the present state of the path in
//! the [`UndoStore`], outside all mounts. At the end of the call it records the new states, so that a later
//! change by someone else is detected. [`UndoPlan`] combines the records of one or more calls: it shows the
//! difference, and undoes the changes.
//!
//! The store follows no symlinks, and reaches every path through the descriptor of its mount.

#![forbid(unsafe_code)]

mod content_copy;
mod diff;
mod error;
mod path_state;
mod plan;
mod record;
mod recorder;
mod restore;
mod sizes;
mod store;
#[cfg(test)]
mod tests;

pub use content_copy::copy_content;
pub use diff::{Difference, DifferenceKind};
pub use error::UndoError;
pub use path_state::{FileMetadata, MountPath, MountRoot, PathState};
pub use plan::{Conflict, ConflictReason, UndoPlan};
pub use record::{CallIdentity, OmissionReason};
pub use recorder::ChangeRecorder;
pub use store::{
    ChangeRecord, MAX_CALL_BYTES, MAX_CALL_PATHS, MAX_FILE_BYTES, MAX_RECORDS, MAX_STORE_BYTES, RecordId,
    UndoStore,
};
