//! [`MessageAllowance`]: limits the rate of a user's messages.

use std::num::NonZeroU32;

use governor::{DefaultKeyedRateLimiter, Quota, RateLimiter};

use crate::error::{ApiError, ErrorCode};

/// The maximum number of messages that a user may send in a minute: 240.
const MAX_MESSAGES_PER_MINUTE: NonZeroU32 = NonZeroU32::new(240).expect("it is not zero");

/// When more users than this are remembered, idle ones are dropped.
const MAX_REMEMBERED: usize = 16_384;

/// Counts the messages of users.
#[derive(Debug)]
pub(crate) struct MessageAllowance(DefaultKeyedRateLimiter<String>);

impl Default for MessageAllowance {
    fn default() -> Self {
        Self(RateLimiter::keyed(Quota::per_minute(MAX_MESSAGES_PER_MINUTE)))
    }
}

impl MessageAllowance {
    /// Counts a message.
    ///
    /// # Errors
    /// [`ErrorCode::TooMany`] if the user sends more messages in a minute than are allowed.
    pub(crate) fn admit(&self, user: &str) -> Result<(), ApiError> {
        // Drop idle users, so that a long uptime does not fill the memory.
        if self.0.len() > MAX_REMEMBERED {
            self.0.retain_recent();
        }
        self.0.check_key(&user.to_owned()).map_err(|_not_until| {
            let message = format!("a user sends at most {MAX_MESSAGES_PER_MINUTE} messages in a minute");
            ApiError::new(ErrorCode::TooMany, message)
        })
    }
}
