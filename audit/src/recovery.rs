//! Recovery at a start after a crash: closes the open calls of dead processes.
//!
//! Runs under the log's lock, so of two processes that start at once the second finds nothing to do. If this
//! process is killed here, the next one continues: the scan finds the `end`s already written, and the live
//! file of the dead process is removed last.

use std::{
    collections::{HashMap, HashSet},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

use super::{
    error::AuditError,
    files::LogFiles,
    lines::{LineEnd, LogLines},
    live::{self, DeadLiveFile},
    read::{OpenCallFields, Row},
    row::{CallEnding, Event, Outcome, Phase},
    writer::LogWriter,
};

/// The repairs made when a log was opened, for the operator.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Recovery {
    /// The torn tail that was cut off.
    pub torn: Option<TornTail>,
    /// The ids of the calls that got an `end` with the outcome `unknown`, oldest first.
    pub closed_begins: Vec<String>,
}

impl Recovery {
    /// Whether there was nothing to repair.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.torn.is_none() && self.closed_begins.is_empty()
    }
}

/// The end of a log that is not a row: a line that a killed process, or a power loss, left unfinished.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The length of the removed part, in bytes.
    pub bytes: u64,
    /// The file that holds it now.
    pub kept_in: PathBuf,
}

/// Writes `end: unknown` for every open call of a dead process, and returns their ids.
pub(super) fn close_dead_calls(files: &LogFiles, writer: &mut LogWriter) -> Result<Vec<String>, AuditError> {
    let dead = live::dead(files)?;
    let mut closed = Vec::new();
    if let Some(from) = dead.iter().filter_map(|dead| dead.mark).min() {
        for row in open_begins(files, writer, &dead, from)? {
            let (process, omitted) = (row.process.clone(), row.omitted);
            let call = row.into_call();
            let ending = Phase::End(CallEnding::new(Outcome::Unknown));
            writer.write(&process, &call, &ending, omitted)?;
            closed.push(call.call_id.as_ref().to_owned());
        }
    }
    if !closed.is_empty() {
        // Sync before removing the live files, without which the next start could not find these calls.
        let synced = files.sync();
        synced.map_err(|errno| AuditError::Sync { path: files.path.clone(), source: errno.into() })?;
    }
    for process in &dead {
        process.remove()?;
    }
    Ok(closed)
}

/// The `begin`s of these processes without an `end`, oldest first.
fn open_begins(
    files: &LogFiles,
    writer: &LogWriter,
    dead: &[DeadLiveFile],
    from: u64,
) -> Result<Vec<Row>, AuditError> {
    let processes: HashSet<&str> = dead.iter().map(DeadLiveFile::process).collect();
    let mut lines = LogLines::new(&files.log, row_boundary(files, from, writer.end()), writer.end());
    // Count the begins: a call id may occur twice, since models choose them.
    let mut open: HashMap<(String, String), Vec<Vec<u8>>> = HashMap::new();
    while let Some(line) = lines.next().map_err(|source| files.read_error(source))? {
        if line.end != LineEnd::Newline {
            continue;
        }
        // An invalid line is no call. Only the verifier reports it.
        let Ok(glance) = serde_json::from_slice::<OpenCallFields<'_>>(line.bytes) else {
            continue;
        };
        if !processes.contains(glance.process.as_ref()) {
            continue;
        }
        let call = (glance.process.into_owned(), glance.call_id.into_owned());
        match glance.event {
            Event::Begin => open.entry(call).or_default().push(line.bytes.to_vec()),
            Event::End => {
                if let Some(begins) = open.get_mut(&call) {
                    // Of two open calls with one id the later one counts as ended.
                    begins.pop();
                    if begins.is_empty() {
                        open.remove(&call);
                    }
                }
            }
            // Not rows of calls.
            Event::Approve | Event::Revoke => {}
        }
    }
    let begins = open.into_values().flatten();
    let mut rows: Vec<Row> = begins.filter_map(|line| serde_json::from_slice(&line).ok()).collect();
    rows.sort_by_key(|row| row.seq);
    Ok(rows)
}

/// The mark, if a row begins there. Otherwise the log was replaced or truncated, so the whole log is scanned.
fn row_boundary(files: &LogFiles, mark: u64, end: u64) -> u64 {
    let mut byte = [0];
    // None for mark 0, which needs no check.
    let before = mark.checked_sub(1).filter(|_| mark <= end);
    let read = before.map(|before| files.log.read_exact_at(&mut byte, before));
    if matches!(read, Some(Ok(()))) && byte == *b"\n" { mark } else { 0 }
}
