//! How much one look reads, and in which order.

use std::{
    collections::VecDeque,
    path::PathBuf,
    time::{Duration, Instant},
};

/// How much one look looks at.
#[derive(Clone, Copy, Debug)]
pub(super) struct Bounds {
    /// Names in folders.
    pub(super) entries: usize,
    /// Besides, in folders that are part of a protected path.
    pub(super) share: usize,
    pub(super) time: Duration,
}

/// How much may still be read in this look, and whether that was enough.
pub(super) struct Budget {
    pub(super) entries: usize,
    pub(super) share: usize,
    pub(super) deadline: Instant,
    pub(super) complete: bool,
}

impl Budget {
    pub(super) fn of(bounds: Bounds) -> Self {
        let Bounds { entries, share, time } = bounds;
        Self { entries, share, deadline: Instant::now() + time, complete: true }
    }

    /// Whether the time is over. What is not looked at for that is said.
    pub(super) fn is_over(&mut self) -> bool {
        let is_over = Instant::now() >= self.deadline;
        self.complete &= !is_over;
        is_over
    }

    /// Takes one name; `false` if it is too many.
    pub(super) fn take(&mut self, is_named: bool) -> bool {
        let left = if is_named && self.share > 0 { &mut self.share } else { &mut self.entries };
        let is_left = *left > 0;
        *left = left.saturating_sub(1);
        self.complete &= is_left;
        is_left
    }
}

/// Folders that are still to be read.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// Part of a protected path.
    pub(super) named: Vec<PathBuf>,
    /// Those that were found first lie less deep.
    pub(super) others: VecDeque<PathBuf>,
}

impl Queue {
    pub(super) fn add(&mut self, folder: PathBuf, is_named: bool) {
        if is_named { self.named.push(folder) } else { self.others.push_back(folder) }
    }

    pub(super) fn next(&mut self) -> Option<(PathBuf, bool)> {
        let named = self.named.pop().map(|folder| (folder, true));
        named.or_else(|| Some((self.others.pop_front()?, false)))
    }

    pub(super) fn len(&self) -> usize {
        self.named.len() + self.others.len()
    }
}
