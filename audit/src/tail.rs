//! Finds the real end of a log: its last whole row, and any torn tail after that row.
//!
//! Reads backwards, and at most a fixed number of bytes, regardless of the log's length.

use std::{fs::File, io, os::unix::fs::FileExt as _, path::Path};

use super::{
    chain::{self, GENESIS, Hash, MAX_ROW_BYTES},
    error::AuditError,
};

/// The maximum length of a torn tail that a crash can leave: 4 MiB, the writes between two syncs of a busy
/// log. A longer tail has another cause, and only the operator may cut it off.
const MAX_TORN_BYTES: usize = 4 * 1024 * 1024;

/// The end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Tail {
    /// The number of the last row. 0 if there is no row.
    pub(super) seq: u64,
    /// The last row's hash.
    pub(super) hash: Hash,
    /// The offset of the next row.
    pub(super) end: u64,
    /// The number of bytes after `end`, which are not a row.
    pub(super) torn_bytes: u64,
}

/// Reads the end of a log that has `size` bytes. The caller holds the log's lock.
pub(super) fn read(file: &File, path: &Path, size: u64) -> Result<Tail, AuditError> {
    let mut window = Vec::new();
    // The first window is nearly always enough. The second fits any row followed by a torn row.
    for max_length in [8 * 1024, 2 * MAX_ROW_BYTES, MAX_TORN_BYTES + MAX_ROW_BYTES] {
        let length = usize::try_from(size).unwrap_or(usize::MAX).min(max_length);
        let window_start = size - length as u64;
        window.resize(length, 0);
        file.read_exact_at(&mut window, window_start)
            .map_err(|source| AuditError::Read { path: path.to_owned(), source })?;
        match last_row(&window, window_start == 0) {
            TailRow::Row { seq, hash, end } => {
                let torn_bytes = (length - end) as u64;
                return Ok(Tail { seq, hash, end: window_start + end as u64, torn_bytes });
            }
            TailRow::NoRow => {
                return Ok(Tail { seq: 0, hash: GENESIS, end: 0, torn_bytes: size });
            }
            TailRow::Altered { at } => {
                return Err(AuditError::Altered { path: path.to_owned(), offset: window_start + at as u64 });
            }
            TailRow::WindowTooSmall => {}
        }
    }
    Err(AuditError::Corrupt { path: path.to_owned(), bytes: window.len() as u64 })
}

/// Whether the row with this hash still ends at `end`.
pub(super) fn still_ends_with(file: &File, end: u64, hash: &Hash) -> io::Result<bool> {
    let Some(tail_start) = end.checked_sub(chain::HASH_TAIL_BYTES as u64) else {
        // Too short for any row, which is valid only for an empty log.
        return Ok(end == 0);
    };
    let mut bytes = [0; chain::HASH_TAIL_BYTES];
    file.read_exact_at(&mut bytes, tail_start)?;
    Ok(chain::tail_has_hash(&bytes, hash))
}

enum TailRow {
    Row { seq: u64, hash: Hash, end: usize },
    NoRow,
    Altered { at: usize },
    WindowTooSmall,
}

/// Returns the end of a window: a row, and possibly a part of a line after it. A whole but invalid line does
/// not come from a crash. Cutting it off would hide tampering, so it counts as altered.
fn last_row(window: &[u8], is_whole_log: bool) -> TailRow {
    let without_row = if is_whole_log { TailRow::NoRow } else { TailRow::WindowTooSmall };
    let Some(newline) = window.iter().rposition(|byte| *byte == b'\n') else { return without_row };
    let line_start = match window[..newline].iter().rposition(|byte| *byte == b'\n') {
        Some(before) => before + 1,
        None if is_whole_log => 0,
        None => return TailRow::WindowTooSmall,
    };
    match chain::check(&window[line_start..=newline]) {
        Ok(link) => TailRow::Row { seq: link.seq, hash: link.hash, end: newline + 1 },
        Err(_) => TailRow::Altered { at: line_start },
    }
}
