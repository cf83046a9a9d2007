//! Recovery at the start after a crash: closes the open calls of dead processes.
//!
//! Recovery runs under the log's lock. If two processes start concurrently, the second finds nothing to do.
//! If this process is killed during recovery, the next process continues. It finds the `end`s that were
//! already written, because the live file of the dead process is removed last.

use std::{collections::HashSet, fs::File, os::unix::fs::FileExt as _, path::PathBuf};

use super::{
    error::AuditError,
    files::LogFiles,
    lines::{LineEnd, LogLines},
    live_file::{self, DeadLiveFile},
    open_calls::OpenCalls,
    read::{OpenCallFields, Row},
    rotation,
    row::{CallEnd, NewRowEvent, Outcome, write::RowBody},
    writer::LogWriter,
};

/// The repairs that were made when a log was opened, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The torn tail that was cut off.
    pub torn_tail: Option<TornTail>,
    /// The ids of the calls that got an `end` with the outcome `unknown`, oldest first.
    pub closed_begins: Vec<String>,
}

impl Recovery {
    /// Whether nothing was repaired.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.torn_tail.is_none() && self.closed_begins.is_empty()
    }
}

/// The end of a log that is not a row: a line that a killed process or a power loss left incomplete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The length of the removed part, in bytes.
    pub bytes: u64,
    /// The file that now contains the removed part.
    pub kept_in: PathBuf,
}

/// Writes an `end` with the outcome `unknown` for every open call of a dead process, and returns the calls' ids.
pub(super) fn close_dead_calls(files: &LogFiles, writer: &mut LogWriter) -> Result<Vec<String>, AuditError> {
    let dead_files = live_file::dead_live_files(files)?;
    let mut closed = Vec::new();
    if let Some(scan_start) = dead_files.iter().filter_map(|live_file| live_file.mark).min() {
        for row in open_begins(files, writer, &dead_files, scan_start)? {
            let (process, omitted) = (row.process.clone(), row.omitted);
            let call = row.into_call();
            let ending = NewRowEvent::End(CallEnd::new(Outcome::Unknown));
            writer.write(&process, &RowBody::new(&call, &ending), omitted)?;
            closed.push(call.call_id.as_ref().to_owned());
        }
    }
    if !closed.is_empty() {
        // Sync before removing the live files: without them, the next start could not find these calls again.
        let sync_result = files.sync();
        sync_result.map_err(|errno| AuditError::Sync { path: files.path.clone(), source: errno.into() })?;
    }
    for process in &dead_files {
        process.remove()?;
    }
    Ok(closed)
}

/// Returns the `begin`s of these processes that have no `end`, oldest first.
fn open_begins(
    files: &LogFiles,
    writer: &LogWriter,
    dead_files: &[DeadLiveFile],
    scan_start: u64,
) -> Result<Vec<Row>, AuditError> {
    let processes: HashSet<&str> = dead_files.iter().map(DeadLiveFile::process).collect();
    // No limit here, because every open call must get its `end`.
    let mut open_begin_lines: OpenCalls<Vec<u8>> = OpenCalls::new(usize::MAX);
    for (file, start, end) in ranges_from(files, writer, scan_start)? {
        let mut lines = LogLines::new(&file, row_boundary(&file, start, end), end);
        while let Some(line) = lines.next().map_err(|source| files.read_error(source))? {
            if line.end != LineEnd::Newline {
                continue;
            }
            // An invalid line is not a call. The verifier reports it.
            let Ok(fields) = serde_json::from_slice::<OpenCallFields<'_>>(line.bytes) else {
                continue;
            };
            if !processes.contains(fields.process.as_ref()) {
                continue;
            }
            open_begin_lines.track(&fields, || line.bytes.to_vec(), Vec::len);
        }
    }
    let (begins, _) = open_begin_lines.into_open();
    let mut rows: Vec<Row> = begins.iter().filter_map(|line| serde_json::from_slice(line).ok()).collect();
    rows.sort_by_key(|row| row.seq);
    Ok(rows)
}

/// Returns the parts of the log's files from an offset of the whole log on, the oldest first. Omits parts
/// whose segment was removed.
fn ranges_from(
    files: &LogFiles,
    writer: &LogWriter,
    scan_start: u64,
) -> Result<Vec<(File, u64, u64)>, AuditError> {
    let (segment, end) = writer.segment_and_end();
    let log = segment.file.try_clone().map_err(|source| files.read_error(source))?;
    let mut ranges = vec![(log, scan_start.saturating_sub(segment.start_offset), end)];
    let mut start_offset = segment.start_offset;
    if scan_start < start_offset {
        for part in rotation::sealed_before(files, segment)?.into_iter().rev() {
            if scan_start >= start_offset {
                break;
            }
            let (_, file, length) = part.open()?;
            start_offset = start_offset.saturating_sub(length);
            ranges.push((file, scan_start.saturating_sub(start_offset), length));
        }
    }
    ranges.reverse();
    Ok(ranges)
}

/// Returns the mark if a row starts there, and 0 otherwise: the log was replaced or truncated, so recovery
/// scans the whole file.
fn row_boundary(file: &File, mark: u64, end: u64) -> u64 {
    let mut byte = [0];
    // A mark of 0 needs no check.
    let previous_offset = mark.checked_sub(1).filter(|_| mark <= end);
    let read_result = previous_offset.map(|offset| file.read_exact_at(&mut byte, offset));
    if matches!(read_result, Some(Ok(()))) && byte == *b"\n" { mark } else { 0 }
}
