//! Errors of the audit log, for operators; a model never sees them. After a failed write, the pipeline must
//! not run the current call, or must not release its result.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

use super::key::KeyError;

/// Why the audit log cannot be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The log, or its state folder, cannot be opened.
    #[error("cannot open the audit log `{path}`", path = .path.display())]
    Open {
        /// The path of the file or folder.
        path: PathBuf,
        /// The I/O error when it was opened or locked.
        #[source]
        source: io::Error,
    },
    /// The log's name refers to something other than a regular file: a symlink, a folder, a pipe or a device.
    #[error("the audit log `{path}` is not a regular file", path = .path.display())]
    NotAFile {
        /// The log's path.
        path: PathBuf,
    },
    /// Another process has held the log's lock for too long. It may be stopped (`SIGSTOP`).
    #[error("the audit log `{path}` has been locked by another process for {waiting_time:?}", path = .path.display())]
    Busy {
        /// The log's path.
        path: PathBuf,
        /// How long this process has waited for the lock.
        waiting_time: Duration,
    },
    /// The log cannot be read.
    #[error("cannot read the audit log `{path}`", path = .path.display())]
    Read {
        /// The log's path.
        path: PathBuf,
        /// The I/O error of the read.
        #[source]
        source: io::Error,
    },
    /// A row cannot be written, for example because the disk is full.
    #[error("cannot write to the audit log `{path}`", path = .path.display())]
    Write {
        /// The log's path.
        path: PathBuf,
        /// The I/O error of the write.
        #[source]
        source: io::Error,
    },
    /// Rows could not be synced. The error is permanent, because the kernel reports a lost page only once.
    #[error("the audit log `{path}` cannot be synchronized to the disk", path = .path.display())]
    Sync {
        /// The log's path.
        path: PathBuf,
        /// The I/O error of the sync.
        #[source]
        source: io::Error,
    },
    /// The log is shorter than this process left it.
    #[error("the audit log `{path}` was truncated: {found} bytes, {expected} expected", path = .path.display())]
    Truncated {
        /// The log's path.
        path: PathBuf,
        /// The size that this process left, in bytes.
        expected: u64,
        /// The log's current size, in bytes.
        found: u64,
    },
    /// The log was deleted or moved away, or another file took its name.
    #[error("the audit log `{path}` was replaced or deleted while in use", path = .path.display())]
    Replaced {
        /// The log's path.
        path: PathBuf,
    },
    /// The last row that this process has read was changed, or a later line is not a valid row.
    #[error("the audit log `{path}` was altered at byte {offset}; look at it with `portcullis audit verify`, and move it away to start a new one", path = .path.display())]
    Altered {
        /// The log's path.
        path: PathBuf,
        /// The byte offset of the row.
        offset: u64,
    },
    /// The torn tail of the log is longer than a crash can explain, so it is not cut off.
    #[error("the last {bytes} bytes of the audit log `{path}` hold no valid row", path = .path.display())]
    Corrupt {
        /// The log's path.
        path: PathBuf,
        /// The number of bytes examined.
        bytes: u64,
    },
    /// A torn tail cannot be saved elsewhere, so it is not cut off.
    #[error("cannot save the torn tail of the audit log in `{path}`", path = .path.display())]
    SaveTornTail {
        /// The file that should have received the tail.
        path: PathBuf,
        /// The I/O error of the copy.
        #[source]
        source: io::Error,
    },
    /// A text that rows name by its hash, a policy or a question, cannot be stored.
    #[error("cannot store `{path}` beside the audit log", path = .path.display())]
    StoreText {
        /// The file that should have received the text.
        path: PathBuf,
        /// The I/O error.
        #[source]
        source: io::Error,
    },
    /// The live file of this process cannot be created, read or removed.
    #[error("cannot read or write the audit log's live file `{path}`", path = .path.display())]
    Live {
        /// The path of the file or its folder.
        path: PathBuf,
        /// The I/O error of the file.
        #[source]
        source: io::Error,
    },
    /// The log does not contain the rows of the newest checkpoint in this state folder: rows were cut off or
    /// rewritten, or the log was replaced by another one.
    #[error(
        "the audit log `{path}` has {rows} rows and does not continue its newest checkpoint, which covers {size}; look at it with `portcullis audit verify`, and move it away with `audit.segments` and `audit.checkpoint` to start a new one",
        path = .path.display()
    )]
    CheckpointMismatch {
        /// The log's path.
        path: PathBuf,
        /// The number of rows that the checkpoint covers.
        size: u64,
        /// The number of the log's last row.
        rows: u64,
    },
    /// The file of the newest checkpoint does not contain a checkpoint.
    #[error("`{path}` does not hold a checkpoint; look at the log with `portcullis audit verify`, and move the file away if the log is intact", path = .path.display())]
    InvalidCheckpoint {
        /// The file's path.
        path: PathBuf,
    },
    /// The key that signs checkpoints cannot be used.
    #[error("cannot sign a checkpoint of the audit log")]
    Key {
        /// Why the key cannot be used.
        #[source]
        source: KeyError,
    },
    /// The thread that syncs the log cannot be started.
    #[error("cannot start the thread that synchronizes the audit log")]
    Thread {
        /// The I/O error when the thread was started.
        #[source]
        source: io::Error,
    },
    /// A line of the log is not a row. [`super::verify()`] reports the details.
    #[error("the line at byte {offset} of the audit log `{path}` is not a row", path = .path.display())]
    Malformed {
        /// The log's path.
        path: PathBuf,
        /// The line's byte offset.
        offset: u64,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// A line of the log is longer than any row.
    #[error("the line at byte {offset} of the audit log `{path}` is longer than any row", path = .path.display())]
    Overlong {
        /// The log's path.
        path: PathBuf,
        /// The line's byte offset.
        offset: u64,
    },
}

impl AuditError {
    /// Whether the log does not exist yet, as in a fresh state folder.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
