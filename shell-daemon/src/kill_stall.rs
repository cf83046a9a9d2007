//! Decides when a kill has failed.

use std::time::{Duration, Instant};

use crate::limits::{KILL_SAMPLES, KILL_TIMEOUT};

/// Whether the killed processes could have ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SurvivorState {
    /// Some of them run or wait for a processor. Each of these ends once it has run for long enough.
    Runnable,
    /// None of them runs or waits for a processor: the kernel cannot end them now.
    Blocked,
}

/// Detects whether a kill has stalled: the number of survivors has stopped falling. Create it when the kill
/// starts.
///
/// Time alone is not a good measure: on a busy machine one sample can take longer than the timeout. The
/// number of samples alone is not a good measure either: on an idle machine many samples take very little
/// time.
#[derive(Debug)]
pub(crate) struct StallDetector {
    time: Duration,
    started_at: Instant,
    fewest: usize,
    /// The time of the last sample that found fewer survivors or a runnable one, and the number of samples since then.
    last_decrease: Instant,
    samples: u32,
}

impl StallDetector {
    pub(crate) fn new(time: Duration) -> Self {
        let now = Instant::now();
        Self { time, started_at: now, fewest: usize::MAX, last_decrease: now, samples: 0 }
    }

    /// A detector for another part of the same kill. It does not compare with earlier samples, but the total time
    /// continues.
    pub(crate) fn next_phase(&self) -> Self {
        Self { started_at: self.started_at, ..Self::new(self.time) }
    }

    /// Records one sample, and returns whether the kill has failed. A kill fails after [`KILL_TIMEOUT`], or earlier if
    /// all survivors stay blocked and none ends for `time` and [`KILL_SAMPLES`] samples.
    pub(crate) fn record_sample(&mut self, survivor_count: usize, survivors: SurvivorState) -> bool {
        if survivor_count < self.fewest || survivors == SurvivorState::Runnable {
            (self.fewest, self.last_decrease, self.samples) =
                (survivor_count.min(self.fewest), Instant::now(), 0);
        } else {
            self.samples += 1;
        }
        let is_stuck = self.samples >= KILL_SAMPLES && self.last_decrease.elapsed() >= self.time;
        is_stuck || self.started_at.elapsed() >= KILL_TIMEOUT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_is_not_given_up_while_survivors_decrease() {
        // The time is zero, so only the number of samples counts.
        let mut detector = StallDetector::new(Duration::ZERO);
        for survivor_count in (1..1000).rev() {
            assert!(!detector.record_sample(survivor_count, SurvivorState::Blocked), "{survivor_count}");
        }
        // A number above the fewest is not progress, but not yet a failure.
        for _ in 1..KILL_SAMPLES {
            assert!(!detector.record_sample(2, SurvivorState::Blocked));
        }
        assert!(detector.record_sample(1, SurvivorState::Blocked));
        assert!(!detector.record_sample(0, SurvivorState::Blocked), "less after all");
        // A new part of the kill starts counting from zero.
        assert!(!detector.next_phase().record_sample(5, SurvivorState::Blocked));
        // The time never passes, so the number of samples does not matter.
        let mut detector = StallDetector::new(Duration::MAX);
        assert!((0..10 * KILL_SAMPLES).all(|_| !detector.record_sample(1, SurvivorState::Blocked)));
    }

    #[test]
    fn process_waiting_for_a_processor_is_not_a_stall() {
        let mut detector = StallDetector::new(Duration::ZERO);
        assert!((0..10 * KILL_SAMPLES).all(|_| !detector.record_sample(3, SurvivorState::Runnable)));
        assert!((1..KILL_SAMPLES).all(|_| !detector.record_sample(3, SurvivorState::Blocked)));
        assert!(detector.record_sample(3, SurvivorState::Blocked));
    }

    #[test]
    fn a_kill_ends_at_its_limit() {
        let mut detector = StallDetector::new(Duration::ZERO);
        assert!(!detector.record_sample(9, SurvivorState::Blocked));
        detector.started_at -= KILL_TIMEOUT;
        assert!(detector.record_sample(8, SurvivorState::Blocked), "though it becomes less");
        assert!(detector.next_phase().record_sample(1, SurvivorState::Blocked));
    }
}
