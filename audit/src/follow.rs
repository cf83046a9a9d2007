//! Reads the rows of a log as they are written.

use std::{
    fs::{self, File},
    os::unix::fs::MetadataExt as _,
    path::{Path, PathBuf},
};

use super::{
    error::AuditError,
    lines::{LineEnd, LogLines},
    read::{self, RowLine},
    segments::{self, SEGMENT_EXTENSION, SEGMENTS_DIR, SegmentStart},
};

/// The maximum number of rows that are returned at a time: 1,000.
const MAX_BATCH_ROWS: usize = 1000;

/// A position in a log, up to which its rows have been read.
#[derive(Debug)]
pub struct LogFollower {
    path: PathBuf,
    file: File,
    /// The number of the segment that is read.
    segment: u64,
    offset: u64,
}

impl LogFollower {
    /// Starts at the current end of a log.
    ///
    /// # Errors
    /// [`AuditError::Open`], also if there is no log yet ([`AuditError::is_missing`]),
    /// [`AuditError::NotAFile`], [`AuditError::Busy`].
    pub fn at_end(path: &Path) -> Result<Self, AuditError> {
        let (file, offset) = segments::open_at_end(path)?;
        let start = SegmentStart::read(&file);
        let segment = start.map_err(|source| AuditError::Read { path: path.to_owned(), source })?.number;
        Ok(Self { path: path.to_owned(), file, segment, offset })
    }

    /// Starts at the first row of the open segment.
    ///
    /// # Errors
    /// As in [`Self::at_end`].
    pub fn at_start(path: &Path) -> Result<Self, AuditError> {
        Ok(Self { offset: 0, ..Self::at_end(path)? })
    }

    /// Returns the rows that were written since the last call, at most 1,000. A line that is not a row yields
    /// an error in its place. Empty if there are none yet.
    ///
    /// # Errors
    /// [`AuditError::Truncated`] and [`AuditError::Replaced`] if the log is not the one that was read before,
    /// and the errors of reading. After such an error, no call returns another row.
    pub fn new_rows(&mut self) -> Result<Vec<Result<RowLine, AuditError>>, AuditError> {
        let read_error = |source| AuditError::Read { path: self.path.clone(), source };
        // Check whether the name still refers to this file before reading the file to its end: once the file
        // has lost its name, no row can be added to it.
        let metadata = self.file.metadata().map_err(read_error)?;
        let path_metadata = fs::symlink_metadata(&self.path);
        let is_still_named =
            path_metadata.is_ok_and(|path| (path.dev(), path.ino()) == (metadata.dev(), metadata.ino()));
        let end = self.file.metadata().map_err(read_error)?.len();
        if end < self.offset {
            return Err(AuditError::Truncated { path: self.path.clone(), expected: self.offset, found: end });
        }
        let mut lines = LogLines::new(&self.file, self.offset, end);
        let mut rows = Vec::new();
        while rows.len() < MAX_BATCH_ROWS
            && let Some(line) = lines.next().map_err(read_error)?
        {
            // A torn line is still being written, or recovery will cut it off, so read it again next time.
            if line.end == LineEnd::File {
                break;
            }
            rows.extend(read::parse(&self.path, line.offset, line.bytes, line.end).transpose());
            self.offset = line.offset + line.length;
        }
        // All rows of this file have been read. If it was sealed, continue with the next segment.
        if rows.is_empty() && !is_still_named {
            self.enter_next_segment((metadata.dev(), metadata.ino()))?;
        }
        Ok(rows)
    }

    /// Continues in the segment after this one, which must be sealed.
    fn enter_next_segment(&mut self, identity: (u64, u64)) -> Result<(), AuditError> {
        let replaced_error = || AuditError::Replaced { path: self.path.clone() };
        let state_folder = self.path.parent().ok_or_else(replaced_error)?;
        let sealed = segments::listed(state_folder, SEGMENT_EXTENSION)
            .map_err(|source| AuditError::Read { path: state_folder.join(SEGMENTS_DIR), source })?;
        let path_of = |number| {
            let name = sealed.iter().find(|name| name.number == number)?;
            Some(segments::path_of(state_folder, name, SEGMENT_EXTENSION))
        };
        let own_metadata = path_of(self.segment).and_then(|path| fs::symlink_metadata(path).ok());
        if own_metadata.is_none_or(|own_metadata| (own_metadata.dev(), own_metadata.ino()) != identity) {
            return Err(replaced_error());
        }
        let next = path_of(self.segment + 1).unwrap_or_else(|| self.path.clone());
        let (file, _) = segments::open_at_end(&next)?;
        let start = SegmentStart::read(&file).map_err(|source| AuditError::Read { path: next, source })?;
        if start.number != self.segment + 1 {
            return Err(replaced_error());
        }
        (self.file, self.segment, self.offset) = (file, start.number, 0);
        Ok(())
    }
}
