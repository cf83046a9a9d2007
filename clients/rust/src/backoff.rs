//! `Backoff`: exponential backoff between attempts.

use std::time::Duration;

/// The first pause.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);

/// The maximum pause.
pub(crate) const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// The backoff between attempts: 1 s, then twice as long each time, up to 30 s.
#[derive(Debug)]
pub(crate) struct Backoff {
    next_delay: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next_delay: FIRST_RETRY_DELAY }
    }
}

impl Backoff {
    /// Returns the delay before the next attempt.
    pub(crate) fn next_delay(&mut self) -> Duration {
        let delay = self.next_delay;
        self.next_delay = (delay * 2).min(MAX_RETRY_DELAY);
        delay
    }

    /// Restarts with the first delay, after a successful attempt.
    pub(crate) fn reset(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_grow_up_to_the_longest() {
        let mut backoff = Backoff::default();
        let seconds: Vec<u64> = (0..7).map(|_| backoff.next_delay().as_secs()).collect();
        assert_eq!(seconds, [1, 2, 4, 8, 16, 30, 30]);
        backoff.reset();
        assert_eq!(backoff.next_delay(), FIRST_RETRY_DELAY);
    }
}
