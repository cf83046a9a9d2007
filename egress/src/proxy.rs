//! The operator's proxy, and tunnels through it (RFC 9110, section 9.3.6).
//!
//! TLS is spoken with the origin, through the tunnel. So a proxy sees the names of hosts, and of plain requests
//! everything.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use url::{Host, Url};

use crate::{
    EgressError, FetchError,
    target::{Place, Target},
};

/// A proxy.
#[derive(Clone, Debug)]
pub(crate) struct Proxy {
    /// The host as the URL writes it.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) place: Place,
}

impl Proxy {
    /// Reads the address of a proxy: `http`, a host, and a port.
    pub(crate) fn of(url: &Url) -> Result<Self, EgressError> {
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
        let place = match url.host() {
            Some(Host::Ipv4(address)) => Place::Address(address.into()),
            Some(Host::Ipv6(address)) => Place::Address(address.into()),
            Some(Host::Domain(_)) | None => Place::Name(host.strip_suffix('.').unwrap_or(host).to_owned()),
        };
        Ok(Self { host: host.to_owned(), port, place })
    }

    /// Whether its host is a name, which name servers must be asked for.
    pub(crate) fn has_name(&self) -> bool {
        matches!(self.place, Place::Name(_))
    }
}

/// Asks a connected proxy for a tunnel to the target. Afterwards every byte is the target's.
///
/// # Cancellation
/// The connection must be dropped with the future.
pub(crate) async fn open_tunnel(proxy: &mut TcpStream, target: &Target) -> Result<(), FetchError> {
    let host = || target.host.clone();
    let broken = |source| FetchError::ProxyBroken { host: host(), source };
    let authority = format!("{}:{}", target.host, target.port);
    let request = format!("CONNECT {authority} HTTP/1.1\r\nHost: {authority}\r\n\r\n");
    proxy.write_all(request.as_bytes()).await.map_err(broken)?;
    let mut head = Vec::with_capacity(READ_BYTES);
    loop {
        let before = head.len();
        let room = (MAX_PROXY_HEAD_BYTES - before) as u64;
        if (&mut *proxy).take(room).read_buf(&mut head).await.map_err(broken)? == 0 {
            let problem = match room {
                0 => "its head is too large",
                _ => "it ends too early",
            };
            return Err(FetchError::ProxyInvalid { host: host(), problem });
        }
        // A head ends with a line, so that one that comes byte by byte is not read anew with each.
        if head[before..].contains(&b'\n') {
            match status_of(&head) {
                Ok(None) => {}
                Ok(Some(200..=299)) => return Ok(()),
                Ok(Some(status)) => return Err(FetchError::ProxyRefused { host: host(), status }),
                Err(problem) => return Err(FetchError::ProxyInvalid { host: host(), problem }),
            }
        }
    }
}

/// The status of a complete answer; none while its head is incomplete.
///
/// # Errors
/// For a head that two readers could read in two ways, and for bytes behind the head of a tunnel's answer: in TLS the
/// client speaks first, so they are the proxy's, and would be taken for the origin's.
fn status_of(answer: &[u8]) -> Result<Option<u16>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_PROXY_HEADERS];
    let mut response = httparse::Response::new(&mut headers);
    let length = match response.parse(answer) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err("it has too many headers"),
        Err(_malformed) => return Err("it is not HTTP/1"),
    };
    let status = response.code.ok_or("it has no status")?;
    if !(200..300).contains(&status) {
        // The rest, with any body, is not read.
        return Ok(Some(status));
    }
    for header in response.headers.iter() {
        let is = |name: &str| header.name.eq_ignore_ascii_case(name);
        if is("transfer-encoding") || (is("content-length") && header.value != b"0") {
            return Err("it announces a body before the tunnel");
        }
    }
    if answer.len() > length {
        return Err("it has bytes before TLS begins");
    }
    Ok(Some(status))
}

/// More than most answers.
const READ_BYTES: usize = 512;

/// The head of a proxy's answer to `CONNECT`. A proxy could else fill the memory.
pub(crate) const MAX_PROXY_HEAD_BYTES: usize = 8 << 10;

/// Headers of such an answer; usual ones have fewer than ten.
pub(crate) const MAX_PROXY_HEADERS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(answer: &str, expected: Result<Option<u16>, &str>) {
        assert_eq!(status_of(answer.as_bytes()), expected, "{answer:?}");
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
        let of = |text: &str| Proxy::of(&text.parse().unwrap());
        let proxy = of("http://Proxy.Test:3128/").unwrap();
        assert_eq!((proxy.host.as_str(), proxy.port, proxy.has_name()), ("proxy.test", 3128, true));
        let proxy = of("http://[::1]").unwrap();
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
            assert!(matches!(of(text), Err(EgressError::Proxy { .. })), "{text}");
        }
    }
}
