//! The limits of one scan, and its order.

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::limits::MAX_PROTECTED_CONTENT_BYTES;

#[derive(Clone, Copy, Debug)]
pub(super) struct ScanBounds {
    /// The maximum number of names that are read in folders.
    pub(super) entries: usize,
    /// The maximum number of further names, in folders that are part of a protected path.
    pub(super) reserve_entries: usize,
    pub(super) time: Duration,
}

/// The remaining budget of a scan, and whether the scan is complete.
pub(super) struct ScanBudget {
    pub(super) entries: usize,
    pub(super) reserve_entries: usize,
    /// Bytes of files that may still be read.
    content: u64,
    pub(super) deadline: Instant,
    pub(super) complete: bool,
}

impl ScanBudget {
    pub(super) fn new(bounds: ScanBounds) -> Self {
        let ScanBounds { entries, reserve_entries, time } = bounds;
        Self {
            entries,
            reserve_entries,
            content: MAX_PROTECTED_CONTENT_BYTES,
            deadline: Instant::now() + time,
            complete: true,
        }
    }

    /// Whether the time is used up. The scan is then incomplete.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = Instant::now() >= self.deadline;
        self.complete &= !is_over;
        is_over
    }

    /// Takes the bytes of a file from the budget. Returns `false` if fewer are left.
    pub(super) fn take_content(&mut self, bytes: u64) -> bool {
        let remaining = self.content.checked_sub(bytes);
        self.content = remaining.unwrap_or(self.content);
        self.complete &= remaining.is_some();
        remaining.is_some()
    }

    /// Takes one name from the budget. Returns `false` if none is left.
    pub(super) fn take(&mut self, is_protected_part: bool) -> bool {
        let remaining = if is_protected_part && self.reserve_entries > 0 {
            &mut self.reserve_entries
        } else {
            &mut self.entries
        };
        let is_left = *remaining > 0;
        *remaining = remaining.saturating_sub(1);
        self.complete &= is_left;
        is_left
    }
}

/// Folders still to be read.
#[derive(Debug, Default)]
pub(super) struct FolderQueue {
    /// Folders that are part of a protected path. They are read first.
    pub(super) protected_parts: Vec<PathBuf>,
    /// All other folders, first in, first out: folders at a lesser depth come first.
    pub(super) others: VecDeque<PathBuf>,
}

impl FolderQueue {
    pub(super) fn add(&mut self, folder: PathBuf, is_protected_part: bool) {
        if is_protected_part { self.protected_parts.push(folder) } else { self.others.push_back(folder) }
    }

    pub(super) fn next(&mut self) -> Option<(PathBuf, bool)> {
        let next_protected = self.protected_parts.pop().map(|folder| (folder, true));
        next_protected.or_else(|| Some((self.others.pop_front()?, false)))
    }

    pub(super) fn len(&self) -> usize {
        self.protected_parts.len() + self.others.len()
    }
}
