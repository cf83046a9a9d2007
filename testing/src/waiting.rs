//! Waits for an effect of another thread or process.

use std::{
    thread,
    time::{Duration, Instant},
};

/// How long a test waits for something that must happen. It is far more than any test needs on a busy
/// machine, so a timeout means a fault, and far less than the run time of an endless guest.
pub const TEST_TIMEOUT: Duration = Duration::from_mins(2);

/// Waits until a condition holds, and checks it every 5 ms. `what` completes the sentence "… until".
///
/// # Panics
/// If the condition does not hold within [`TEST_TIMEOUT`].
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + TEST_TIMEOUT;
    while !condition() {
        assert!(Instant::now() < deadline, "waited more than {TEST_TIMEOUT:?} until {what}");
        thread::sleep(Duration::from_millis(5));
    }
}
