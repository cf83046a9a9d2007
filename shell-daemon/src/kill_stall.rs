//! Deciding when a kill has failed.

use std::time::{Duration, Instant};

use crate::limits::{KILL_LOOKS, LONGEST_KILL};

/// Whether the killed processes could have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Some of them run or wait for a processor: each ends once it has run for long enough.
    Waits,
    /// None of them does: the kernel cannot end them now.
    Still,
}

/// Stall detector of a kill: tells whether the number of survivors still falls. It is made when the kill
/// begins.
///
/// Time alone is no measure: on a busy machine one look can take longer than the whole time. The number of
/// looks alone is none either: on an idle machine many looks fit into a moment.
#[derive(Debug)]
pub(crate) struct StallDetector {
    time: Duration,
    begun: Instant,
    fewest: usize,
    /// The time when `fewest` was first found, and the number of looks since then that found no fewer.
    since: Instant,
    looks: u32,
}

impl StallDetector {
    pub(crate) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { time, begun: now, fewest: usize::MAX, since: now, looks: 0 }
    }

    /// A detector for another part of the same kill. It compares with no earlier look, but the total time
    /// goes on.
    pub(crate) fn anew(&self) -> Self {
        Self { begun: self.begun, ..Self::new(self.time) }
    }

    /// Records one look, and returns whether the kill has failed: for at least [`KILL_LOOKS`] looks and for
    /// the whole `time` no look found fewer survivors or one that runs. It has failed in any case after
    /// [`LONGEST_KILL`].
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
        // However long a look takes: the time is zero.
        let mut detector = StallDetector::new(Duration::ZERO);
        for left in (1..1000).rev() {
            assert!(!detector.is_over(left, Pace::Still), "{left}");
        }
        // A number above the fewest is no progress, and not yet the end.
        for _ in 1..KILL_LOOKS {
            assert!(!detector.is_over(2, Pace::Still));
        }
        assert!(detector.is_over(1, Pace::Still));
        assert!(!detector.is_over(0, Pace::Still), "less after all");
        // A new part of the kill starts counting from zero.
        assert!(!detector.anew().is_over(5, Pace::Still));
        // However many looks there are: the time never passes.
        let mut detector = StallDetector::new(Duration::MAX);
        assert!((0..10 * KILL_LOOKS).all(|_| !detector.is_over(1, Pace::Still)));
    }

    #[test]
    fn process_waiting_for_a_processor_is_no_stall() {
        let mut detector = StallDetector::new(Duration::ZERO);
        assert!((0..10 * KILL_LOOKS).all(|_| !detector.is_over(3, Pace::Waits)));
        assert!((1..KILL_LOOKS).all(|_| !detector.is_over(3, Pace::Still)));
        assert!(detector.is_over(3, Pace::Still));
    }

    #[test]
    fn nothing_is_waited_for_longer_than_a_kill_may_take() {
        let mut detector = StallDetector::new(Duration::ZERO);
        assert!(!detector.is_over(9, Pace::Still));
        detector.begun -= LONGEST_KILL;
        assert!(detector.is_over(8, Pace::Still), "though it becomes less");
        assert!(detector.anew().is_over(1, Pace::Still));
    }
}
