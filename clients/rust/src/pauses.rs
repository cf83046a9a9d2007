//! `Pauses`: exponential backoff between attempts.

use std::time::Duration;

/// The first pause.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The maximum pause.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The pauses between attempts: 1 s, then twice as long each time, up to 30 s.
#[derive(Debug)]
pub(crate) struct Pauses {
    next: Duration,
}

impl Default for Pauses {
    fn default() -> Self {
        Self { next: FIRST_RETRY_DELAY }
    }
}

impl Pauses {
    /// Returns the pause before the next attempt.
    pub(crate) fn grow(&mut self) -> Duration {
        let pause = self.next;
        self.next = (pause * 2).min(MAX_RETRY_DELAY);
        pause
    }

    /// Restarts with the first pause, after a successful attempt.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_up_to_the_longest() {
        let mut pauses = Pauses::default();
        let seconds: Vec<u64> = (0..7).map(|_| pauses.grow().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        pauses.reset();
        assert_eq!(pauses.grow(), FIRST_RETRY_DELAY);
    }
}
