//! The bounds of one scan, and its order.

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

use crate::limits::PROTECTED_CONTENT;

/// The bounds of one scan.
#[derive(Clone, Copy, Debug)]
pub(super) struct ScanBounds {
    /// Names in folders.
    pub(super) entries: usize,
    /// Further names, in folders that are part of a protected path.
    pub(super) share: usize,
    pub(super) time: Duration,
}

/// The remaining budget of a scan, and whether it was enough so far.
pub(super) struct Budget {
    pub(super) entries: usize,
    pub(super) share: usize,
    /// Bytes of files that may still be read.
    content: u64,
    pub(super) deadline: Instant,
    pub(super) complete: bool,
}

impl Budget {
    pub(super) fn of(bounds: ScanBounds) -> Self {
        let ScanBounds { entries, share, time } = bounds;
        Self { entries, share, content: PROTECTED_CONTENT, deadline: Instant::now() + time, complete: true }
    }

    /// Whether the time is over. The scan is incomplete then.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = Instant::now() >= self.deadline;
        self.complete &= !is_over;
        is_over
    }

    /// Takes the bytes of a file from the budget; `false` if fewer are left.
    pub(super) fn take_content(&mut self, bytes: u64) -> bool {
        let left = self.content.checked_sub(bytes);
        self.content = left.unwrap_or(self.content);
        self.complete &= left.is_some();
        left.is_some()
    }

    /// Takes one name from the budget; `false` if there is none left.
    pub(super) fn take(&mut self, is_protected_part: bool) -> bool {
        let left = if is_protected_part && self.share > 0 { &mut self.share } else { &mut self.entries };
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        self.complete &= is_left;
        is_left
    }
}

/// Folders still to be read.
#[derive(Debug, Default)]
pub(super) struct FolderQueue {
    /// Folders that are part of a protected path. Read first.
    pub(super) named: Vec<PathBuf>,
    /// All others. First in, first out: the less deep ones come first.
    pub(super) others: VecDeque<PathBuf>,
}

impl FolderQueue {
    pub(super) fn add(&mut self, folder: PathBuf, is_protected_part: bool) {
        if is_protected_part { self.named.push(folder) } else { self.others.push_back(folder) }
    }

    pub(super) fn next(&mut self) -> Option<(PathBuf, bool)> {
        let named = self.named.pop().map(|folder| (folder, true));
        named.or_else(|| Some((self.others.pop_front()?, false)))
    }

    pub(super) fn len(&self) -> usize {
        self.named.len() + self.others.len()
    }
}
