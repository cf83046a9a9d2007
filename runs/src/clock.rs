//! Timestamps of the store's rows.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Returns the current time, in milliseconds since the Unix epoch.
#[must_use]
pub fn now() -> i64 {
    // A clock before 1970 counts as 1970.
    milliseconds(SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default())
}

/// Converts a duration to milliseconds.
pub(crate) fn milliseconds(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}
