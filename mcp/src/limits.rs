//! What bounds a server: nothing that a client sends or leaves undone may take more.

use std::time::Duration;

/// The limits of an MCP server. [`McpLimits::default`] has what `portcullis serve` uses.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct McpLimits {
    /// How long one message may be, in bytes. Default: 4 MiB. Without it a line without end takes all memory.
    pub message_bytes: usize,
    /// How many calls of one session may be under way. Default: 1 024. What is above it is refused at once.
    pub calls: usize,
    /// How many messages to a client may wait for it to read them. Default: 64. Above it nothing more is read
    /// from that client.
    pub unsent: usize,
    /// How many unreadable messages in a row end a session. Default: 100.
    pub unreadable: u32,
    /// How many reports of one call wait to be sent. Default: 256. What is above it is left out.
    pub reports: usize,
    /// How long calls may go on when the client has left. Default: 2 s.
    pub leave: Duration,
    /// How long a server that is told to end waits for its calls, which it cancels at once, to be answered. Default:
    /// 10 s. Rows that are not written by then are waited for as long again.
    pub stop: Duration,
    /// How long a client may take to begin the session. Default: 60 s.
    pub initialize: Duration,
    /// How many HTTP connections are open. Default: 256. What is above it gets status 503.
    pub connections: usize,
    /// How many HTTP sessions there are. Default: 64. What is above it gets status 503.
    pub sessions: usize,
    /// How long an HTTP session may be idle. Default: 15 min, which is longer than any call.
    pub idle: Duration,
    /// How long an HTTP client may take to send a request's head, and then its body. Default: 10 s each.
    pub request: Duration,
    /// How many bytes a request's head may have. Default: 16 KiB.
    pub head_bytes: usize,
}

impl Default for McpLimits {
    fn default() -> Self {
        Self {
            message_bytes: 4 << 20,
            calls: 1024,
            unsent: 64,
            unreadable: 100,
            reports: 256,
            leave: Duration::from_secs(2),
            stop: Duration::from_secs(10),
            initialize: Duration::from_secs(60),
            connections: 256,
            sessions: 64,
            idle: Duration::from_secs(15 * 60),
            request: Duration::from_secs(10),
            head_bytes: 16 << 10,
        }
    }
}
