//! Reads the rows that are written from now on.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    error::AuditError,
    lines::{LineEnd, LogLines},
    read::{self, RowLine},
};

/// The most rows that are returned at once: 1,000.
const MAX_BATCH_ROWS: usize = 1000;

/// The place in a log up to which its rows were read.
#[derive(Debug)]
pub struct LogFollower {
    path: PathBuf,
    file: File,
    offset: u64,
}

impl LogFollower {
    /// Starts at the present end of a log.
    ///
    /// # Errors
    /// [`AuditError::Open`], also if there is no log yet ([`AuditError::is_missing`]), [`AuditError::NotAFile`],
    /// [`AuditError::Busy`].
    pub fn at_end(path: &Path) -> Result<Self, AuditError> {
        let (file, offset) = read::open(path)?;
        Ok(Self { path: path.to_owned(), file, offset })
    }

    /// Starts at the first row of a log.
    ///
    /// # Errors
    /// As in [`Self::at_end`].
    pub fn at_start(path: &Path) -> Result<Self, AuditError> {
        Ok(Self { offset: 0, ..Self::at_end(path)? })
    }

    /// The rows that were written since the last call, at most 1,000, each with the error of a line that is
    /// not a row in its place. Empty if there are none yet.
    ///
    /// # Errors
    /// [`AuditError::Truncated`] and [`AuditError::Replaced`] if the log is no longer the one that was read, and the
    /// errors of reading. Then no call finds another row.
    pub fn new_rows(&mut self) -> Result<Vec<Result<RowLine, AuditError>>, AuditError> {
        let read_error = |source| AuditError::Read { path: self.path.clone(), source };
        let facts = self.file.metadata().map_err(read_error)?;
        let end = facts.len();
        if end < self.offset {
            return Err(AuditError::Truncated { path: self.path.clone(), expected: self.offset, found: end });
        }
        let mut lines = LogLines::new(&self.file, self.offset, end);
        let mut rows = Vec::new();
        while rows.len() < MAX_BATCH_ROWS
            && let Some(line) = lines.next().map_err(read_error)?
        {
            // A torn line is being written, or will be cut off: it is read again.
            if line.end == LineEnd::File {
                break;
            }
            rows.extend(read::parse(&self.path, line.offset, line.bytes, line.end).transpose());
            self.offset = line.offset + line.length;
        }
        if rows.is_empty() {
            // Every row of this file was read. Rows of another file in its place would not be found.
            match fs::symlink_metadata(&self.path) {
                Ok(named) if (named.dev(), named.ino()) == (facts.dev(), facts.ino()) => {}
                _ => return Err(AuditError::Replaced { path: self.path.clone() }),
            }
        }
        Ok(rows)
    }
}
