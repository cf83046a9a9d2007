//! [`McpLimits`]: limits on everything that a client may send or leave open.

use std::time::Duration;

/// The limits of an MCP server. `portcullis serve` uses [`McpLimits::default`].
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpLimits {
    /// The maximum length of one message, in bytes. Default: 4 MiB. Without the limit, a line without an end could fill
    /// the memory.
    pub max_message_bytes: usize,
    /// The maximum number of calls of one session that run concurrently. Default: 1,024. Further calls are refused
    /// immediately.
    pub max_calls: usize,
    /// The maximum number of messages that wait for a client to read them. Default: 64. Beyond this limit the server
    /// stops reading from that client.
    pub max_unsent: usize,
    /// The number of unreadable messages in a row after which a session ends. Default: 100.
    pub max_unreadable: u32,
    /// The maximum number of reports of one call that wait to be sent. Default: 256. Further reports are dropped.
    pub max_unsent_reports: usize,
    /// Grace period for calls after their client has left. Default: 2 s.
    pub leave_grace: Duration,
    /// How long a stopping server waits for the answers of cancelled calls. Default: 10 s. Then it waits at
    /// most as long again for unwritten audit rows.
    pub stop_timeout: Duration,
    /// Deadline for a client to begin its session. Default: 60 s.
    pub initialize_timeout: Duration,
    /// The maximum number of open HTTP connections. Default: 256. Further connections get status 503.
    pub max_connections: usize,
    /// The maximum number of HTTP sessions. Default: 64. Further sessions get status 503.
    pub max_sessions: usize,
    /// An HTTP session ends after this time without a message from either side. Default: 15 min. A running
    /// call is not a message, but its heartbeats are; the server sends them if the client gave a progress
    /// token. A call that is silent for longer, which a policy can allow, is cancelled when its session has
    /// ended.
    pub idle_timeout: Duration,
    /// Deadline for a request's head, and again for its body. Default: 10 s each.
    pub request_timeout: Duration,
    /// The maximum length of a request's head, in bytes. Default: 16 KiB.
    pub max_head_bytes: usize,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            max_message_bytes: 4 << 20,
            max_calls: 1024,
            max_unsent: 64,
            max_unreadable: 100,
            max_unsent_reports: 256,
            leave_grace: Duration::from_secs(2),
            stop_timeout: Duration::from_secs(10),
            initialize_timeout: Duration::from_secs(60),
            max_connections: 256,
            max_sessions: 64,
            idle_timeout: Duration::from_secs(15 * 60),
            request_timeout: Duration::from_secs(10),
            max_head_bytes: 16 << 10,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_manual_has_the_default_limits() {
        let manual = include_str!("../../docs/mcp.md");
        let limits = McpLimits::default();
        assert_eq!(limits.max_calls, 1024);
        let (minutes, leave) = (limits.idle_timeout.as_secs() / 60, limits.leave_grace.as_secs());
        for statement in [
            format!("| one message | {} MiB;", limits.max_message_bytes >> 20),
            "| concurrent calls of a session | 1,024;".to_owned(),
            "more than 1,024 concurrent calls of one session".to_owned(),
            format!("| unreadable messages in a row | {},", limits.max_unreadable),
            format!("| answers that wait for a client to read | {},", limits.max_unsent),
            format!("| reports of a call that wait | {};", limits.max_unsent_reports),
            format!("up to {} reports wait", limits.max_unsent_reports),
            format!("| HTTP connections, streams among them | {};", limits.max_connections),
            format!("| HTTP sessions | {} (`McpLimits::max_sessions`);", limits.max_sessions),
            format!("until it was idle for {minutes} minutes |"),
            format!("after {minutes} minutes without a message"),
            format!("has {leave} seconds for its calls to end"),
            format!("| answers after the server was asked to stop | {} s |", limits.stop_timeout.as_secs()),
            format!("That takes at most {} seconds", limits.stop_timeout.as_secs()),
            format!("| head of a request | {} KiB, ", limits.max_head_bytes >> 10),
            format!(" headers, {} s;", limits.request_timeout.as_secs()),
            format!("| body of a request | {} s,", limits.request_timeout.as_secs()),
        ] {
            assert!(manual.contains(&statement), "docs/mcp.md does not say {statement:?}");
        }
    }
}
