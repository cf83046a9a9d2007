//! The operator's proxy, and tunnels through it (RFC 9110, section 9.3.6).
//!
//! TLS ends at the origin. The proxy therefore sees only host and port of `https` requests, but everything of
//! `http` requests.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use url::{Host, Url};

use crate::{
    EgressError, FetchError,
    target::{HostKind, Target},
};

/// The address of a proxy.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    /// The host as [`Url::host_str`] writes it.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) kind: HostKind,
}

impl Proxy {
    /// Parses a proxy's URL: the scheme `http`, a host and a port, nothing else.
    pub(crate) fn parse(url: &Url) -> Result<Self, EgressError> {
        let invalid = |problem| EgressError::Proxy { problem };
        if url.scheme() != "http" {
            return Err(invalid("its scheme is not `http`"));
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(invalid("it has a user name or a password"));
        }
        if url.path() != "/" || url.query().is_some() || url.fragment().is_some() {
            return Err(invalid("it has more than a host and a port"));
        }
        let (Some(host), Some(port)) = (url.host_str(), url.port_or_known_default()) else {
            return Err(invalid("it has no host"));
        };
        let kind = match url.host() {
            Some(Host::Ipv4(address)) => HostKind::Address(address.into()),
            Some(Host::Ipv6(address)) => HostKind::Address(address.into()),
            Some(Host::Domain(_)) | None => HostKind::Name(host.strip_suffix('.').unwrap_or(host).to_owned()),
        };
        Ok(Self { host: host.to_owned(), port, kind })
    }

    /// Returns whether the host is a name, which must be resolved.
    pub(crate) fn has_name(&self) -> bool {
        matches!(self.kind, HostKind::Name(_))
    }
}

/// Asks a connected proxy for a tunnel. After success, all bytes flow to and from the target.
///
/// # Cancellation
/// The caller must drop the connection together with the future.
pub(crate) async fn open_tunnel(proxy: &mut TcpStream, target: &Target) -> Result<(), FetchError> {
    let host = || target.host.clone();
    let broken = |source| FetchError::ProxyBroken { host: host(), source };
    let authority = format!("{}:{}", target.host, target.port);
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    proxy.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::with_capacity(READ_BYTES);
    loop {
        let length_before = head.len();
        let free_bytes = (MAX_PROXY_HEAD_BYTES - length_before) as u64;
        if (&mut *proxy).take(free_bytes).read_buf(&mut head).await.map_err(broken)? == 0 {
            let problem = match free_bytes {
                0 => "its head is too large",
                _ => "it ends too early",
            };
            return Err(FetchError::ProxyInvalid { host: host(), problem });
        }
        // Parse only when a line is complete. Otherwise a response that arrives byte by byte would be parsed
        // again for each byte.
        if head[length_before..].contains(&b'\n') {
            match status_of(&head) {
                Ok(None) => {}
                Ok(Some(200..=299)) => return Ok(()),
                Ok(Some(status)) => return Err(FetchError::ProxyRefused { host: host(), status }),
                Err(problem) => return Err(FetchError::ProxyInvalid { host: host(), problem }),
            }
        }
    }
}

/// Returns the status of the proxy's response, or `None` while its head is incomplete.
///
/// # Errors
/// The problem, if the response is not HTTP/1, is ambiguous, or has bytes after a 2xx head. Such bytes come from the
/// proxy, because a TLS client sends first, but they would be read as the origin's.
fn status_of(head: &[u8]) -> Result<Option<u16>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_PROXY_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(head) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("it has too many headers"),
        Err(_malformed) => return Err("it is not HTTP/1"),
    };
    let status = response.code.ok_or("it has no status")?;
    if !(200..300).contains(&status) {
        // Only the status of a refusal is used.
        return Ok(Some(status));
    }
    for header in response.headers.iter() {
        let is_header = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is_header("transfer-encoding") || (is_header("content-length") && header.value != b"0") {
            return Err("it announces a body before the tunnel");
        }
    }
    if head.len() > length {
        return Err("it has bytes before TLS begins");
    }
    Ok(Some(status))
}

/// The initial buffer for a response. Most responses are shorter.
const READ_BYTES: usize = 512;

/// The maximum length of the head of a proxy's response: 8 KiB. The bound keeps a proxy from filling the memory.
pub(crate) const MAX_PROXY_HEAD_BYTES: usize = 8 << 10;

/// The maximum number of headers of a proxy's response. Usual responses have fewer than ten.
pub(crate) const MAX_PROXY_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, expected: Result<Option<u16>, &str>) {
        assert_eq!(status_of(head.as_bytes()), expected, "{head:?}");
    }

    #[test]
    fn a_tunnel_is_open_with_any_status_of_success() {
        check("HTTP/1.1 200 Connection established\r\n\r\n", Ok(Some(200)));
        check("HTTP/1.0 200 OK\r\nVia: 1.1 proxy\r\nContent-Length: 0\r\n\r\n", Ok(Some(200)));
        check("HTTP/1.1 204 None\r\n\r\n", Ok(Some(204)));
        check("HTTP/1.1 200 OK\r\nVia: 1.1 pro", Ok(None));
        for status in [100, 101, 301, 403, 407, 502] {
            check(&format!("HTTP/1.1 {status} X\r\nContent-Length: 5\r\n\r\nhello"), Ok(Some(status)));
        }
    }

    #[test]
    fn an_answer_that_can_be_read_twice_is_refused() {
        for head in [
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 0\r\ntransfer-encoding: identity\r\n\r\n",
        ] {
            check(head, Err("it announces a body before the tunnel"));
        }
        check("HTTP/1.1 200 OK\r\n\r\n\x16", Err("it has bytes before TLS begins"));
        check("HTTP/1.1 200 OK\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Err("it has bytes before TLS begins"));
        for head in [
            "HTTP/2 200\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\0b\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\rb\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx : a\r\n\r\n",
            "HTTP/1.1 200 OK\r\nx: a\r\n folded\r\n\r\n",
            "SSH-2.0-OpenSSH\r\n\r\n",
        ] {
            check(head, Err("it is not HTTP/1"));
        }
        let many = "x: y\r\n".repeat(MAX_PROXY_HEADERS + 1);
        check(&format!("HTTP/1.1 200 OK\r\n{many}\r\n"), Err("it has too many headers"));
    }

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        let parse = |text: &str| Proxy::parse(&text.parse().unwrap());
        let proxy = parse("http://Proxy.Test:3128/").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port, proxy.has_name()), ("proxy.test", 3128, true));
        let proxy = parse("http://[::1]").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port, proxy.has_name()), ("[::1]", 80, false));
        for text in [
            "https://proxy.test:3128",
            "socks5://proxy.test:1080",
            "http://user@proxy.test",
            "http://user:word@proxy.test",
            "http://proxy.test/path",
            "http://proxy.test/?query",
            "http://proxy.test/#fragment",
        ] {
            assert!(matches!(parse(text), Err(EgressError::Proxy { .. })), "{text}");
        }
    }
}
