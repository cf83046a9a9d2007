//! The limits of a request.

use std::time::Duration;

/// Bounds of one request with all its redirects. The sizes are those of each response alone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Redirects that are followed; 0 means that the first is an error. Default: 5.
    pub max_redirects: u32,
    /// Method, URL, headers and body that are sent, in bytes. Default: 1 MiB.
    pub request_bytes: usize,
    /// A response's status line and headers together, in bytes, and as much for the trailers. A server could
    /// else fill the memory before a body begins. Less than 8 KiB counts as 8 KiB. Default: 64 KiB.
    pub header_bytes: usize,
    /// The number of a response's headers. Default: 100.
    pub header_count: usize,
    /// A response's body as it is transferred, in bytes, before decompression. Default: 10 MiB.
    pub wire_bytes: usize,
    /// A response's body after decompression, in bytes. Default: 10 MiB.
    pub response_bytes: usize,
    /// The addresses of one name. A name with more is refused, since each of them is judged. Default: 64.
    pub addresses: usize,
    /// Connecting to one address, being let through by a proxy, and agreeing on TLS. Default: 10 s each.
    pub connect: Duration,
    /// From the request until the response's headers are complete. Default: 30 s.
    pub first_byte: Duration,
    /// The whole request: names, connections, redirects, bodies. Default: 60 s.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            max_redirects: 5,
            request_bytes: 1 << 20,
            header_bytes: 64 << 10,
            header_count: 100,
            wire_bytes: 10 << 20,
            response_bytes: 10 << 20,
            addresses: 64,
            connect: Duration::from_secs(10),
            first_byte: Duration::from_secs(30),
            total: Duration::from_secs(60),
        }
    }
}
