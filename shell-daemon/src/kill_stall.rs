//! Deciding when a kill has failed.

use std::time::{Duration, Instant};

use crate::limits::{KILL_SAMPLES, LONGEST_KILL};

/// Whether the killed processes could have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Survivors {
    /// Some of them run or wait for a processor: each ends once it has run for long enough.
    Runnable,
    /// None of them does: the kernel cannot end them now.
    Blocked,
}

/// Stall detector of a kill: tells whether the number of survivors still falls. It is made when the kill
/// begins.
///
/// Time alone is no measure: on a busy machine one sample can take longer than the whole time. The number of
/// samples alone is none either: on an idle machine many samples fit into a moment.
#[derive(Debug)]
pub(crate) struct StallDetector {
    time: Duration,
    begun: Instant,
    fewest: usize,
    /// The time when `fewest` was first found, and the number of samples since then that found no fewer.
    since: Instant,
    samples: u32,
}

impl StallDetector {
    pub(crate) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { time, begun: now, fewest: usize::MAX, since: now, samples: 0 }
    }

    /// A detector for another part of the same kill. It compares with no earlier sample, but the total time
    /// goes on.
    pub(crate) fn anew(&self) -> Self {
        Self { begun: self.begun, ..Self::new(self.time) }
    }

    /// Records one sample, and returns whether the kill has failed: for at least [`KILL_SAMPLES`] samples and for
    /// the whole `time` no sample found fewer survivors or one that runs. It has failed in any case after
    /// [`LONGEST_KILL`].
    pub(crate) fn is_over(&mut self, left: usize, survivors: Survivors) -> bool {
        if left < self.fewest || survivors == Survivors::Runnable {
            (self.fewest, self.since, self.samples) = (left.min(self.fewest), Instant::now(), 0);
        } else {
            self.samples += 1;
        }
        let is_stuck = self.samples >= KILL_SAMPLES && self.since.elapsed() >= self.time;
        is_stuck || self.begun.elapsed() >= LONGEST_KILL
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_not_given_up_while_survivors_decrease() {
        // However long a sample takes: the time is zero.
        let mut detector = StallDetector::new(Duration::ZERO);
        for left in (1..1000).rev() {
            assert!(!detector.is_over(left, Survivors::Blocked), "{left}");
        }
        // A number above the fewest is no progress, and not yet the end.
        for _ in 1..KILL_SAMPLES {
            assert!(!detector.is_over(2, Survivors::Blocked));
        }
        assert!(detector.is_over(1, Survivors::Blocked));
        assert!(!detector.is_over(0, Survivors::Blocked), "less after all");
        // A new part of the kill starts counting from zero.
        assert!(!detector.anew().is_over(5, Survivors::Blocked));
        // However many samples there are: the time never passes.
        let mut detector = StallDetector::new(Duration::MAX);
        assert!((0..10 * KILL_SAMPLES).all(|_| !detector.is_over(1, Survivors::Blocked)));
    }

    #[test]
    fn process_waiting_for_a_processor_is_no_stall() {
        let mut detector = StallDetector::new(Duration::ZERO);
        assert!((0..10 * KILL_SAMPLES).all(|_| !detector.is_over(3, Survivors::Runnable)));
        assert!((1..KILL_SAMPLES).all(|_| !detector.is_over(3, Survivors::Blocked)));
        assert!(detector.is_over(3, Survivors::Blocked));
    }

    #[test]
    fn a_kill_ends_at_its_limit() {
        let mut detector = StallDetector::new(Duration::ZERO);
        assert!(!detector.is_over(9, Survivors::Blocked));
        detector.begun -= LONGEST_KILL;
        assert!(detector.is_over(8, Survivors::Blocked), "though it becomes less");
        assert!(detector.anew().is_over(1, Survivors::Blocked));
    }
}
