//! `notifications/message`: log messages to a client while its calls run.

use rmcp::{
    RoleServer,
    model::{LoggingLevel, LoggingMessageNotificationParam},
    service::{Peer, ServiceError},
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The maximum length of the text of one message or report, in bytes. Longer text is truncated.
const MAX_TEXT_BYTES: usize = 4096;

/// The level of a message, in the protocol's terms.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum LogLevel {
    Debug,
    Info,
    Notice,
    Warning,
    Error,
    Critical,
    Alert,
    Emergency,
}

/// The lowest level that a client wants. Default: `info`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct LogThreshold(pub(super) LogLevel);

impl Default for LogThreshold {
    fn default() -> Self {
        Self(LogLevel::Info)
    }
}

impl LogThreshold {
    /// Returns whether a message of this level passes.
    pub(super) fn allows(self, level: LogLevel) -> bool {
        level >= self.0
    }
}

impl From<LoggingLevel> for LogLevel {
    fn from(level: LoggingLevel) -> Self {
        match level {
            LoggingLevel::Debug => Self::Debug,
            LoggingLevel::Info => Self::Info,
            LoggingLevel::Notice => Self::Notice,
            LoggingLevel::Warning => Self::Warning,
            LoggingLevel::Error => Self::Error,
            LoggingLevel::Critical => Self::Critical,
            LoggingLevel::Alert => Self::Alert,
            LoggingLevel::Emergency => Self::Emergency,
        }
    }
}

impl From<LogLevel> for LoggingLevel {
    fn from(level: LogLevel) -> Self {
        match level {
            LogLevel::Debug => Self::Debug,
            LogLevel::Info => Self::Info,
            LogLevel::Notice => Self::Notice,
            LogLevel::Warning => Self::Warning,
            LogLevel::Error => Self::Error,
            LogLevel::Critical => Self::Critical,
            LogLevel::Alert => Self::Alert,
            LogLevel::Emergency => Self::Emergency,
        }
    }
}

/// Sends a log message about a tool's call.
///
/// # Cancellation
/// Cancel-safe. The message may be lost.
pub(super) async fn send(
    peer: &Peer<RoleServer>,
    level: LogLevel,
    tool: &str,
    data: Value,
) -> Result<(), ServiceError> {
    let mut message = LoggingMessageNotificationParam::new(level.into(), data);
    message.logger = Some(format!("tools.{tool}"));
    peer.notify_logging_message(message).await
}

/// Truncates a text to the limit.
pub(super) fn bounded(mut text: String) -> String {
    if text.len() > MAX_TEXT_BYTES {
        text.truncate(text.floor_char_boundary(MAX_TEXT_BYTES));
        text.push('…');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_below_the_level_that_a_client_sets_are_kept_from_it() {
        let threshold = LogThreshold::default();
        assert!(threshold.allows(LogLevel::Info) && !threshold.allows(LogLevel::Debug));
        let strict = LogThreshold(LogLevel::Error);
        assert!(strict.allows(LogLevel::Emergency) && !strict.allows(LogLevel::Warning));
    }

    #[test]
    fn long_texts_are_cut_between_characters() {
        assert_eq!(bounded("short".into()), "short");
        let cut = bounded("\u{e4}".repeat(4096));
        assert_eq!(cut.chars().filter(|c| *c == '\u{e4}').count(), 2048);
        assert!(cut.ends_with('…'));
    }
}
