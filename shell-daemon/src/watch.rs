//! How many processes a command has, looked at while it runs and while its jobs do.
//!
//! The kernel's own limit counts all processes of a user, wherever they are, and does not apply to root.

use std::time::{Duration, Instant};

use crate::{ShellError, limits::KILL_TIME, tree, tree::Process};

/// Counts what is below one command's init.
#[derive(Debug)]
pub(crate) struct Watch {
    root: Process,
    most: usize,
    next: Instant,
}

impl Watch {
    pub(crate) fn new(root: Process, most: usize) -> Self {
        Self { root, most, next: Instant::now() + INTERVAL }
    }

    /// How long until it wants to look again.
    pub(crate) fn rest(&self) -> Duration {
        self.next.saturating_duration_since(Instant::now())
    }

    /// Looks, if it is time: whether there are too many.
    pub(crate) fn is_exceeded(&mut self) -> Result<bool, ShellError> {
        if !self.rest().is_zero() {
            return Ok(false);
        }
        let count = tree::living_below(self.root)?.len();
        self.next = Instant::now() + INTERVAL;
        Ok(count > self.most)
    }

    /// Kills all that is below.
    pub(crate) fn kill(&self) -> Result<(), ShellError> {
        tree::kill_below(self.root, KILL_TIME)
    }
}

/// Between two looks: often enough that a bomb of processes does not take the machine, seldom enough that a
/// look, which takes about 10 µs for each process of the machine, is not felt.
const INTERVAL: Duration = Duration::from_millis(100);
