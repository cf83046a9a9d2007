//! A request that a tool makes, and its response.

use std::{fmt, net::SocketAddr};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, Method, StatusCode, header};
use url::Url;

use crate::{ContentCoding, FetchError, RequestLimits};

/// A request. This crate sets `Host`, `Content-Length` and `Accept-Encoding`.
#[derive(Clone)]
pub struct Request {
    /// The method. `CONNECT` and `TRACE` are refused.
    pub method: Method,
    /// The URL. Its fragment is not sent.
    pub url: Url,
    /// Further headers. Those of the connection and of the framing are refused.
    pub headers: HeaderMap,
    /// The body. Empty means none.
    pub body: Bytes,
}

impl Request {
    /// Returns a `GET` request without further headers.
    #[must_use]
    pub fn get(url: Url) -> Self {
        Self { method: Method::GET, url, headers: HeaderMap::new(), body: Bytes::new() }
    }

    /// Refuses a request that is too large, or whose method or headers could make a server read a different
    /// request.
    pub(crate) fn check(&self, limits: &RequestLimits) -> Result<(), FetchError> {
        if matches!(self.method, Method::CONNECT | Method::TRACE) {
            return Err(FetchError::MethodForbidden { method: self.method.clone() });
        }
        if let Some(name) = self.headers.keys().find(|name| is_reserved_header(name)) {
            return Err(FetchError::HeaderForbidden { name: name.clone() });
        }
        let headers: usize =
            // A header line also has `: ` and a line break: 4 bytes.
            self.headers.iter().map(|(name, value)| name.as_str().len() + value.len() + 4).sum();
        let size = self.method.as_str().len() + self.url.as_str().len() + headers + self.body.len();
        if size > limits.request_bytes {
            return Err(FetchError::RequestTooLarge { limit: limits.request_bytes });
        }
        Ok(())
    }
}

/// Omits the path, the query, header values and the body, each of which may hold a secret.
impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("origin", &self.url.origin().ascii_serialization())
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body_bytes", &self.body.len())
            .finish_non_exhaustive()
    }
}

/// The response to the last request of a chain of redirects. Its status is never 1xx.
#[derive(Clone)]
pub struct Response {
    /// The URL that answered, after all redirects, without a fragment.
    pub url: Url,
    /// The number of redirects that were followed.
    pub redirects: u32,
    /// The address that was dialled: the host's, or the proxy's.
    pub address: SocketAddr,
    /// The HTTP status of the last response.
    pub status: StatusCode,
    /// The headers, with secrets redacted. `Content-Encoding` and `Content-Length` describe the transfer, not the
    /// decoded body.
    pub headers: HeaderMap,
    /// The body after decompression and redaction.
    pub body: Bytes,
    /// The size of the body before decompression, in bytes.
    pub wire_bytes: usize,
    /// The compression that was removed.
    pub coding: ContentCoding,
    /// Whether this response, or a redirect before it, repeated a secret. The secret was redacted.
    pub redacted: bool,
}

/// Omits the path, the query, header values and the body.
impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("origin", &self.url.origin().ascii_serialization())
            .field("redirects", &self.redirects)
            .field("address", &self.address)
            .field("status", &self.status)
            .field("headers", &self.headers.keys().collect::<Vec<_>>())
            .field("body_bytes", &self.body.len())
            .field("wire_bytes", &self.wire_bytes)
            .field("coding", &self.coding)
            .field("redacted", &self.redacted)
            .finish_non_exhaustive()
    }
}

/// Returns whether a request cannot set this header, because the header belongs to the connection or the
/// framing, or because this crate sets it. A request with such a header is refused.
#[must_use]
pub fn is_reserved_header(name: &HeaderName) -> bool {
    FORBIDDEN_HEADERS.contains(name)
}

/// The headers that a request cannot set: headers of the connection (RFC 9110, section 7.6.1), of the
/// framing, and those that this crate sets.
pub(crate) const FORBIDDEN_HEADERS: [HeaderName; 13] = [
    header::HOST,
    header::ACCEPT_ENCODING,
    header::CONNECTION,
    header::CONTENT_LENGTH,
    header::EXPECT,
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
];

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn request() -> Request {
        Request::get("http://host.test/path?key=secret".parse().unwrap())
    }

    #[test]
    fn headers_of_the_framing_are_refused() {
        for name in FORBIDDEN_HEADERS {
            let mut request = request();
            request.headers.insert(&name, HeaderValue::from_static("x"));
            let error = request.check(&RequestLimits::default()).unwrap_err();
            assert!(matches!(error, FetchError::HeaderForbidden { .. }), "{name}");
        }
        let mut valid = request();
        valid.headers.insert(header::ACCEPT, HeaderValue::from_static("*/*"));
        valid.check(&RequestLimits::default()).unwrap();
    }

    #[test]
    fn tunnels_and_echoes_are_not_requests() {
        for method in [Method::CONNECT, Method::TRACE] {
            let error = Request { method, ..request() }.check(&RequestLimits::default()).unwrap_err();
            assert_eq!(error.code(), "method_forbidden");
        }
    }

    #[test]
    fn a_large_request_is_refused() {
        let limits = RequestLimits { request_bytes: 100, ..RequestLimits::default() };
        request().check(&limits).unwrap();
        let large = Request { body: Bytes::from(vec![0; 100]), ..request() };
        assert_eq!(large.check(&limits).unwrap_err().code(), "request_too_large");
    }

    #[test]
    fn debug_output_holds_no_values() {
        let mut request = request();
        request.headers.insert(header::AUTHORIZATION, HeaderValue::from_static("Bearer secret"));
        request.body = Bytes::from_static(b"secret");
        let text = format!("{request:?}");
        assert!(!text.contains("secret") && text.contains("authorization"), "{text}");
    }
}
