//! What can go wrong with the audit log. Every one of these means that the call at hand must not run, or
//! that its result must not be released. Operators read them; models never do.

use std::{io, path::PathBuf, time::Duration};

use thiserror::Error;

/// Why the audit log can't be used.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AuditError {
    /// The log, or the state folder it lies in, can't be opened.
    #[error("cannot open the audit log `{path}`", path = .path.display())]
    Open {
        /// What was opened.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Something else has the log's name: a link, a folder, a pipe, a device.
    #[error("the audit log `{path}` is not a regular file", path = .path.display())]
    NotAFile {
        /// Its path.
        path: PathBuf,
    },
    /// Another process holds the log's lock for too long; perhaps it is stopped.
    #[error("the audit log `{path}` is locked by another process since {waited:?}", path = .path.display())]
    Busy {
        /// The log.
        path: PathBuf,
        /// How long we waited.
        waited: Duration,
    },
    /// The log can't be read.
    #[error("cannot read the audit log `{path}`", path = .path.display())]
    Read {
        /// The log.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A row can't be written, for instance since the disk is full. Nothing of it is left in the log.
    #[error("cannot write to the audit log `{path}`", path = .path.display())]
    Write {
        /// The log.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// Rows did not reach the disk. This stays: what the kernel dropped once it does not report twice.
    #[error("the audit log `{path}` cannot be synchronised to the disk", path = .path.display())]
    Sync {
        /// The log.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The log is shorter than this process left it.
    #[error("the audit log `{path}` was truncated: {found} bytes, {expected} expected", path = .path.display())]
    Truncated {
        /// The log.
        path: PathBuf,
        /// The size that this process left.
        expected: u64,
        /// The size now.
        found: u64,
    },
    /// The log was deleted, moved away, or another file has its place.
    #[error("the audit log `{path}` was replaced or deleted while in use", path = .path.display())]
    Replaced {
        /// The log.
        path: PathBuf,
    },
    /// A row that this process relies on is no longer what was written, or a row that follows is not
    /// from us or our like.
    #[error("the audit log `{path}` was altered at byte {offset}; look at it with `portcullis audit verify`, and move it away to start a new one", path = .path.display())]
    Altered {
        /// The log.
        path: PathBuf,
        /// Where.
        offset: u64,
    },
    /// More of the log's end is broken than a crash can explain, so nothing is cut off.
    #[error("the last {bytes} bytes of the audit log `{path}` hold no valid row", path = .path.display())]
    Corrupt {
        /// The log.
        path: PathBuf,
        /// How many bytes were looked at.
        bytes: u64,
    },
    /// A torn tail can't be put aside, so it is not cut off either.
    #[error("cannot keep the torn end of the audit log in `{path}`", path = .path.display())]
    KeepTorn {
        /// The file it was to go to.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The file that says that this process is alive can't be made, read or removed.
    #[error("cannot use the audit log's process file `{path}`", path = .path.display())]
    Live {
        /// The file or its folder.
        path: PathBuf,
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// The thread that synchronises the log can't be started.
    #[error("cannot start the thread that synchronises the audit log")]
    Thread {
        /// Why it failed.
        #[source]
        source: io::Error,
    },
    /// A line of the log is no row. [`super::verify()`] says more.
    #[error("line {line} of the audit log `{path}` is not a row", path = .path.display())]
    Malformed {
        /// The log.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
        /// What is wrong with it.
        #[source]
        source: serde_json::Error,
    },
    /// A line of the log is longer than any row.
    #[error("line {line} of the audit log `{path}` is longer than any row", path = .path.display())]
    Overlong {
        /// The log.
        path: PathBuf,
        /// The line's number, from 1.
        line: u64,
    },
}

impl AuditError {
    /// Whether there simply is no log yet, as in a fresh state folder.
    #[must_use]
    pub fn is_missing(&self) -> bool {
        matches!(self, Self::Open { source, .. } if source.kind() == io::ErrorKind::NotFound)
    }
}
