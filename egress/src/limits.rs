//! The limits of a request.

use std::time::Duration;

/// The limits of one request with all its redirects. The sizes apply to each single response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// The maximum number of redirects that are followed. With 0, the first redirect is an error. Default: 5.
    pub max_redirects: u32,
    /// A request's method, URL, headers and body together, in bytes. Default: 1 MiB.
    pub request_bytes: usize,
    /// A response's status line and headers together, in bytes, and again its trailers. Without the limit, a server
    /// could fill the memory before a body begins. Less than 8 KiB counts as 8 KiB. Default: 64 KiB.
    pub header_bytes: usize,
    /// The maximum number of headers of a response. Default: 100.
    pub header_count: usize,
    /// A response's body before decompression, in bytes. Default: 10 MiB.
    pub wire_bytes: usize,
    /// A response's body after decompression, in bytes. Default: 10 MiB.
    pub response_bytes: usize,
    /// The window of earlier output that a decoder may keep, in bytes. Brotli needs 16 MiB and is not offered below
    /// that; gzip needs 32 KiB. Default: 16 MiB.
    pub window_bytes: usize,
    /// The maximum number of addresses of one name. A name with more is refused, since each address is judged. Default:
    /// 64.
    pub addresses: usize,
    /// The time limit for connecting to one address, for opening a proxy's tunnel, and for the TLS handshake. Default:
    /// 10 s each.
    pub connect_timeout: Duration,
    /// The time limit from the request to the end of the response's headers, or for resolving the host of a tunnel or
    /// dial. Default: 30 s.
    pub first_byte_timeout: Duration,
    /// The time limit for the whole request: names, connections, redirects, bodies. Default: 60 s.
    pub total_timeout: Duration,
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            max_redirects: 5,
            request_bytes: 1 << 20,
            header_bytes: 64 << 10,
            header_count: 100,
            wire_bytes: 10 << 20,
            response_bytes: 10 << 20,
            window_bytes: 16 << 20,
            addresses: 64,
            connect_timeout: Duration::from_secs(10),
            first_byte_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
        }
    }
}
