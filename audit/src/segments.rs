//! Segments: the files that a long log is divided into.
//!
//! ```text
//! <state>/audit.jsonl                                  the open segment, which is written
//! <state>/audit.segments/000003-<first>-<last>.jsonl   a sealed segment, with the numbers of its first and last rows
//! <state>/audit.segments/000003-<first>-<last>.note    the checkpoint of all rows up to its last one
//! ```
//!
//! Every segment except the first starts with a `checkpoint` row. The chain thus continues from segment to
//! segment, and the tree can be extended without the earlier segments.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use rustix::{
    fs::{CWD, Mode, OFlags, openat},
    io::Errno,
};
use serde::Deserialize;

use super::{
    chain::{self, ChainLink, MAX_ROW_BYTES},
    error::AuditError,
    files::LOG_NAME,
    lock,
    seal::frontier_of,
    tree::Frontier,
};

/// The folder of the sealed segments in the state folder.
pub const SEGMENTS_DIR: &str = "audit.segments";

/// The extensions of a sealed segment and of its checkpoint.
pub(super) const SEGMENT_EXTENSION: &str = "jsonl";
pub(super) const NOTE_EXTENSION: &str = "note";

/// The name of a sealed segment, or of its checkpoint.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct SegmentName {
    /// The segment's number, from 1.
    pub(super) number: u64,
    /// The numbers of its first and its last row.
    pub(super) first: u64,
    pub(super) last: u64,
}

impl SegmentName {
    /// The file's name.
    pub(super) fn file_name(&self, ending: &str) -> String {
        format!("{:06}-{}-{}.{ending}", self.number, self.first, self.last)
    }

    fn parse(name: &str, ending: &str) -> Option<Self> {
        let stem = name.strip_suffix(ending)?.strip_suffix('.')?;
        let mut numbers = stem.split('-').map(|digits| digits.parse::<u64>().ok());
        let (number, first, last) = (numbers.next()??, numbers.next()??, numbers.next()??);
        let parsed = Self { number, first, last };
        // Accept only names that this program writes: no signs, and the exact number of leading zeros.
        (numbers.next().is_none() && parsed.file_name(ending) == name).then_some(parsed)
    }
}

/// Lists the segments or checkpoints in a state folder, the oldest first. Ignores files with other names.
pub(super) fn listed(state_folder: &Path, ending: &str) -> io::Result<Vec<SegmentName>> {
    let mut names = Vec::new();
    let folder = match fs::read_dir(state_folder.join(SEGMENTS_DIR)) {
        Ok(folder) => folder,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(names),
        Err(error) => return Err(error),
    };
    for entry in folder {
        if let Some(name) = entry?.file_name().to_str().and_then(|name| SegmentName::parse(name, ending)) {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// Returns the path of a sealed segment or its checkpoint.
pub(super) fn path_of(state_folder: &Path, name: &SegmentName, ending: &str) -> PathBuf {
    state_folder.join(SEGMENTS_DIR).join(name.file_name(ending))
}

/// The facts in the first row of a segment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SegmentStart {
    /// The segment's number, from 1.
    pub(super) number: u64,
    /// The length of all earlier segments together.
    pub(super) bytes_before: u64,
    /// The number of the first row.
    pub(super) first_seq: u64,
    /// When the first row was written. `None` for an empty segment.
    pub(super) started_at: Option<Timestamp>,
    /// The first row as a link of the chain. `None` if the segment is empty, or its first line is not a row.
    pub(super) link: Option<ChainLink>,
    /// The tree of all rows before the segment, from the segment's first row. `None` for a first segment.
    pub(super) tree: Option<Frontier>,
}

/// The fields of a first row that give the position of its segment.
#[derive(Debug, Deserialize)]
struct FirstRow {
    time: Timestamp,
    segment: Option<u64>,
    bytes_before: Option<u64>,
}

impl SegmentStart {
    /// Reads the first row of a file. If the first line is not a row, the file counts as the first segment,
    /// and the verifier reports the line.
    pub(super) fn read(file: &File) -> io::Result<Self> {
        let mut line = vec![0; MAX_ROW_BYTES];
        let mut length = 0;
        while length < line.len() && !line[..length].contains(&b'\n') {
            match file.read_at(&mut line[length..], length as u64) {
                Ok(0) => break,
                Ok(read) => length += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        let mut start =
            Self { number: 1, bytes_before: 0, first_seq: 1, started_at: None, link: None, tree: None };
        if let Some(newline) = line[..length].iter().position(|byte| *byte == b'\n')
            && let Ok(link) = chain::check(&line[..=newline])
            && let Ok(row) = serde_json::from_slice::<FirstRow>(&line[..newline])
        {
            start.first_seq = link.seq;
            start.started_at = Some(row.time);
            start.link = Some(link);
            start.tree = frontier_of(&line[..=newline]);
            if let (Some(number), Some(bytes_before)) = (row.segment, row.bytes_before) {
                (start.number, start.bytes_before) = (number, bytes_before);
            }
        }
        Ok(start)
    }
}

/// One file of a log, for reading.
#[derive(Debug)]
pub(super) struct LogPart {
    /// The file's path.
    pub(super) path: PathBuf,
    /// `None` until the part is reached, because a log can have more segments than a process
    /// may have open files.
    file: Option<File>,
    /// The length up to which to read. `None` until the part is reached.
    end: Option<u64>,
}

impl LogPart {
    /// Returns a whole sealed segment.
    pub(super) fn sealed(state_folder: &Path, name: &SegmentName) -> Self {
        Self { path: path_of(state_folder, name, SEGMENT_EXTENSION), file: None, end: None }
    }

    /// Reads the facts in the first row.
    pub(super) fn start(&self) -> Result<SegmentStart, AuditError> {
        let read_error = |source| AuditError::Read { path: self.path.clone(), source };
        match &self.file {
            Some(file) => SegmentStart::read(file).map_err(read_error),
            None => SegmentStart::read(&open_for_reading(&self.path)?).map_err(read_error),
        }
    }

    /// Opens the file, and returns the length up to which to read.
    pub(super) fn open(self) -> Result<(PathBuf, File, u64), AuditError> {
        let Self { path, file, end } = self;
        let file = match file {
            Some(file) => file,
            None => open_for_reading(&path)?,
        };
        let end = match end {
            Some(end) => end,
            None => length_of(&file, &path)?,
        };
        Ok((path, file, end))
    }
}

/// Returns the current files of a log, the oldest first. If the file has another name,
/// returns only that file.
pub(super) fn log_parts(path: &Path) -> Result<Vec<LogPart>, AuditError> {
    // Open the segment first: segments that are sealed after this point contain only later rows.
    let (file, end) = open_at_end(path)?;
    let mut parts = Vec::new();
    if let (Some(state_folder), true) = (path.parent(), path.file_name().is_some_and(|name| name == LOG_NAME))
    {
        let read_error = |source| AuditError::Read { path: path.to_owned(), source };
        let current = SegmentStart::read(&file).map_err(read_error)?;
        let folder = state_folder.join(SEGMENTS_DIR);
        let names = listed(state_folder, SEGMENT_EXTENSION)
            .map_err(|source| AuditError::Read { path: folder.clone(), source })?;
        for name in names.into_iter().filter(|name| name.number < current.number) {
            parts.push(LogPart::sealed(state_folder, &name));
        }
    }
    parts.push(LogPart { path: path.to_owned(), file: Some(file), end: Some(end) });
    Ok(parts)
}

/// Opens a file of a log for reading, and reads its length under the shared lock, so that no
/// row is half-written.
pub(super) fn open_at_end(path: &Path) -> Result<(File, u64), AuditError> {
    let file = open_for_reading(path)?;
    let lock_guard = lock::lock_shared(&file, path, lock::LOCK_TIMEOUT)?;
    let end = length_of(&file, path)?;
    drop(lock_guard);
    Ok((file, end))
}

fn length_of(file: &File, path: &Path) -> Result<u64, AuditError> {
    let metadata = file.metadata();
    Ok(metadata.map_err(|source| AuditError::Open { path: path.to_owned(), source })?.len())
}

fn open_for_reading(path: &Path) -> Result<File, AuditError> {
    let failed = |source| AuditError::Open { path: path.to_owned(), source };
    // Non-blocking, so that opening a FIFO in the log's place returns immediately.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = match openat(CWD, path, flags, Mode::empty()) {
        Ok(file) => File::from(file),
        Err(Errno::LOOP) => return Err(AuditError::NotAFile { path: path.to_owned() }),
        Err(errno) => return Err(failed(errno.into())),
    };
    if !file.metadata().map_err(failed)?.is_file() {
        return Err(AuditError::NotAFile { path: path.to_owned() });
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_as_they_are_written_are_segments() {
        let name = SegmentName { number: 17, first: 4001, last: 9000 };
        assert_eq!(name.file_name(SEGMENT_EXTENSION), "000017-4001-9000.jsonl");
        assert_eq!(SegmentName::parse("000017-4001-9000.jsonl", SEGMENT_EXTENSION), Some(name));
        for other in [
            "17-4001-9000.jsonl",
            "000017-+4001-9000.jsonl",
            "000017-4001-9000.note",
            "000017-4001-9000-1.jsonl",
            "000017-4001.jsonl",
            "000017-4001-9000jsonl",
            "../000017-4001-9000.jsonl",
            "",
        ] {
            assert_eq!(SegmentName::parse(other, SEGMENT_EXTENSION), None, "{other}");
        }
    }
}
