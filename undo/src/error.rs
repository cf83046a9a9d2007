//! [`UndoError`].

use std::{io, path::PathBuf};

use thiserror::Error;

use crate::plan::Conflict;

/// Why changes cannot be recorded, shown or undone.
#[derive(Debug, Error)]
pub enum UndoError {
    /// A file or folder of the store cannot be used.
    #[error("cannot read or write `{}` in the store of changes", path.display())]
    Store {
        /// The file or folder.
        path: PathBuf,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The present state of a path cannot be read.
    #[error("cannot read the present state of `{path}`")]
    Examine {
        /// The path, with its mount.
        path: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// The content of a file cannot be copied into its record.
    #[error("cannot store the content of `{path}`")]
    Copy {
        /// The path, with its mount.
        path: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A record cannot be written.
    #[error("cannot write the record `{id}` of changes")]
    Record {
        /// The record's id.
        id: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A record is damaged, or a newer version wrote it.
    #[error("the record `{id}` of changes cannot be read: {reason}")]
    Damaged {
        /// The record's id.
        id: String,
        /// Why the record cannot be read, as a clause without a full stop.
        reason: String,
    },
    /// No record has this id or call.
    #[error("no recorded changes belong to `{name}`; `portcullis changes` lists those that are kept")]
    Unknown {
        /// The id of a record, a call or a run.
        name: String,
    },
    /// The policy has no such mount at present, or its mount is another folder.
    #[error("the mount `{mount}` is no longer the folder that the changes were made in")]
    MountChanged {
        /// The mount's name.
        mount: String,
    },
    /// Paths differ from the state in which the calls left them, or their earlier content was not stored.
    /// Nothing was changed.
    #[error("nothing was undone, because {} of the paths cannot be restored as they were", conflicts.len())]
    Conflicts {
        /// The paths, with reasons.
        conflicts: Vec<Conflict>,
    },
    /// A step failed before anything was changed.
    #[error("nothing was undone, because `{path}` cannot be prepared")]
    Stage {
        /// The path, with its mount.
        path: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
    /// A step failed after others had been completed. The record of this attempt can undo those.
    #[error("`{path}` cannot be restored; `portcullis undo {record}` undoes what was done so far")]
    Restore {
        /// The path, with its mount.
        path: String,
        /// The id of the record of this attempt.
        record: String,
        /// The system's reason.
        #[source]
        source: io::Error,
    },
}
