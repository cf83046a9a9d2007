//! How long a kill is waited for.

use std::time::{Duration, Instant};

use crate::limits::{KILL_LOOKS, LONGEST_KILL};

/// Whether what was killed could have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Some of it waits for a processor, or has one: it ends as soon as it has had one for long enough.
    Waits,
    /// Nothing of it does: the kernel cannot end it now.
    Still,
}

/// Whether what is killed still becomes less. Begins with the kill.
///
/// Time alone does not tell: where the machine has much else to do, one look can take longer than all of it. Looks
/// alone do not either: where it has nothing to do, many of them fit into a moment.
#[derive(Debug)]
pub(crate) struct StallDetector {
    time: Duration,
    begun: Instant,
    fewest: usize,
    /// When the fewest were found for the first time, and how many looks have found no fewer since.
    since: Instant,
    looks: u32,
}

impl StallDetector {
    pub(crate) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { time, begun: now, fewest: usize::MAX, since: now, looks: 0 }
    }

    /// For another part of the same kill: what it finds is compared with nothing, and there is no more time in all.
    pub(crate) fn anew(&self) -> Self {
        Self { begun: self.begun, ..Self::new(self.time) }
    }

    /// Takes what a look has found. It is over when many looks, and all looks of the whole time, have found no
    /// fewer and nothing that waits for a processor; and in any case after [`LONGEST_KILL`].
    pub(crate) fn is_over(&mut self, left: usize, pace: Pace) -> bool {
        if left < self.fewest || pace == Pace::Waits {
            (self.fewest, self.since, self.looks) = (left.min(self.fewest), Instant::now(), 0);
        } else {
            self.looks += 1;
        }
        let is_stuck = self.looks >= KILL_LOOKS && self.since.elapsed() >= self.time;
        is_stuck || self.begun.elapsed() >= LONGEST_KILL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_lasts_as_long_as_it_becomes_less() {
        // However long a look takes.
        let mut patience = StallDetector::new(Duration::ZERO);
        for left in (1..1000).rev() {
            assert!(!patience.is_over(left, Pace::Still), "{left}");
        }
        // More than there were is not less, and not yet the end.
        for _ in 1..KILL_LOOKS {
            assert!(!patience.is_over(2, Pace::Still));
        }
        assert!(patience.is_over(1, Pace::Still));
        assert!(!patience.is_over(0, Pace::Still), "less after all");
        // What is killed now has had no time yet.
        assert!(!patience.anew().is_over(5, Pace::Still));
        // However many looks there are.
        let mut patience = StallDetector::new(Duration::MAX);
        assert!((0..10 * KILL_LOOKS).all(|_| !patience.is_over(1, Pace::Still)));
    }

    #[test]
    fn what_waits_for_a_processor_is_waited_for() {
        let mut patience = StallDetector::new(Duration::ZERO);
        assert!((0..10 * KILL_LOOKS).all(|_| !patience.is_over(3, Pace::Waits)));
        assert!((1..KILL_LOOKS).all(|_| !patience.is_over(3, Pace::Still)));
        assert!(patience.is_over(3, Pace::Still));
    }

    #[test]
    fn nothing_is_waited_for_longer_than_a_kill_may_take() {
        let mut patience = StallDetector::new(Duration::ZERO);
        assert!(!patience.is_over(9, Pace::Still));
        patience.begun -= LONGEST_KILL;
        assert!(patience.is_over(8, Pace::Still), "though it becomes less");
        assert!(patience.anew().is_over(1, Pace::Still));
    }
}
