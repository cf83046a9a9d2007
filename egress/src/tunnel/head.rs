//! The client's request for a tunnel.

use tokio::{io::AsyncReadExt as _, net::TcpStream};
use url::{Host, Url};

use super::TunnelError;

/// A parsed request for a tunnel.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ConnectHead {
    /// The host in lower case, without a trailing dot.
    pub(super) host: String,
    pub(super) port: u16,
    /// The target as `https://host:port/`, for the judge and for dialling.
    pub(super) url: Url,
    /// Bytes after the request, which belong to the tunnel.
    pub(super) early_bytes: Vec<u8>,
}

/// Reads a request of at most `limit` bytes.
pub(super) async fn read(stream: &mut TcpStream, limit: usize) -> Result<ConnectHead, TunnelError> {
    let mut bytes = Vec::with_capacity(READ_BYTES.min(limit));
    loop {
        let length_before = bytes.len();
        if (&mut *stream).take((limit - length_before) as u64).read_buf(&mut bytes).await? == 0 {
            return Err(if length_before == limit {
                TunnelError::HeadTooLarge { limit }
            } else {
                TunnelError::Head { problem: "it ends too early" }
            });
        }
        // Parse only when a line is complete. Otherwise a client that sends byte by byte would have the whole
        // head parsed again for every byte.
        if bytes[length_before..].contains(&b'\n')
            && let Some(head) = parse(&bytes)?
        {
            return Ok(head);
        }
    }
}

/// Parses a request. Returns `None` while it is incomplete.
fn parse(bytes: &[u8]) -> Result<Option<ConnectHead>, TunnelError> {
    let invalid = |problem| TunnelError::Head { problem };
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    let length = match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(httparse::Error::TooManyHeaders) => return Err(invalid("it has too many headers")),
        Err(_malformed) => return Err(invalid("it is not HTTP/1")),
    };
    if request.method != Some("CONNECT") {
        return Err(TunnelError::Method);
    }
    let authority = request.path.unwrap_or_default();
    let (host, port) = target(authority)?;
    let mut has_host = false;
    for header in request.headers.iter() {
        // The head is not forwarded, so most headers are ignored. These two would announce a body where TLS
        // must follow.
        if header.name.eq_ignore_ascii_case("transfer-encoding")
            || (header.name.eq_ignore_ascii_case("content-length") && header.value != b"0")
        {
            return Err(invalid("a request for a tunnel has no body"));
        }
        if header.name.eq_ignore_ascii_case("host") {
            let is_same = header.value.eq_ignore_ascii_case(authority.as_bytes())
                || header.value.eq_ignore_ascii_case(host.as_bytes());
            // A second `Host` is ambiguous: two readers could take different ones.
            if has_host || !is_same {
                return Err(invalid("its header `Host` names another host"));
            }
            has_host = true;
        }
    }
    let url = Url::parse(&format!("https://{host}:{port}/"))
        .map_err(|_invalid| invalid("its target is not a host"))?;
    Ok(Some(ConnectHead { host, port, url, early_bytes: bytes[length..].to_vec() }))
}

/// Parses a target into a name and a port, both in canonical form. An address is refused in every spelling.
fn target(authority: &str) -> Result<(String, u16), TunnelError> {
    let invalid = |problem| TunnelError::Head { problem };
    let (host, port) =
        authority.rsplit_once(':').ok_or_else(|| invalid("its target has no port: write `host:port`"))?;
    let number = port.parse::<u16>().ok().filter(|number| *number != 0 && number.to_string() == port);
    let number = number.ok_or_else(|| invalid("its port is not a number from 1 to 65535"))?;
    let written = host.to_ascii_lowercase();
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    if !written.bytes().all(is_plain) && !written.starts_with('[') {
        return Err(invalid("its target is not a plain host name"));
    }
    match Host::parse(&written) {
        Ok(Host::Domain(name)) if name == written && !name.ends_with('.') && name.len() <= MAX_NAME_BYTES => {
            Ok((name, number))
        }
        Ok(Host::Ipv4(_) | Host::Ipv6(_)) => Err(TunnelError::Address),
        Ok(Host::Domain(_)) | Err(_) => Err(invalid("its target is not a plain host name")),
    }
}

/// The initial buffer for a request. Most requests are shorter.
const READ_BYTES: usize = 512;

/// The maximum length of a name in characters (RFC 1035, section 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// The maximum number of headers of a request. Usual requests have three.
const MAX_HEADERS: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(head: &str, expected: Result<(&str, u16, &str), &str>) {
        let parsed = parse(head.as_bytes());
        let fields = parsed.as_ref().map(|head| {
            let head = head.as_ref().expect("complete");
            (head.host.as_str(), head.port, std::str::from_utf8(&head.early_bytes).unwrap())
        });
        assert_eq!(fields.map_err(TunnelError::code), expected, "{head:?}");
    }

    #[test]
    fn a_target_is_a_plain_name_with_a_port() {
        check("CONNECT a.test:443 HTTP/1.1\r\n\r\n", Ok(("a.test", 443, "")));
        check("CONNECT A.Test:8443 HTTP/1.0\r\nHost: a.test\r\n\r\n\x16x", Ok(("a.test", 8443, "\x16x")));
        check("CONNECT a.test:443 HTTP/1.1\r\nHost: a.test:443\r\nX: y\r\n\r\n", Ok(("a.test", 443, "")));
        for target in [
            "a.test",
            "a.test:0",
            "a.test:0443",
            "a.test:+443",
            "a.test:65536",
            "a.test:443:443",
            "a.test.:443",
            ":443",
            "user@a.test:443",
            "a%2etest:443",
            "b\u{fc}cher.test:443",
            "/:443",
            "https://a.test:443",
            "*.test:443",
        ] {
            check(&format!("CONNECT {target} HTTP/1.1\r\n\r\n"), Err("tunnel_request_invalid"));
        }
        for target in ["127.0.0.1:443", "[::1]:443", "0x7f.1:443", "2130706433:443", "0177.0.0.1:443"] {
            check(&format!("CONNECT {target} HTTP/1.1\r\n\r\n"), Err("tunnel_to_address"));
        }
    }

    #[test]
    fn other_methods_and_bodies_are_refused() {
        check("GET http://a.test/ HTTP/1.1\r\n\r\n", Err("tunnel_not_connect"));
        check("connect a.test:443 HTTP/1.1\r\n\r\n", Err("tunnel_not_connect"));
        for header in [
            "Content-Length: 5",
            "content-length: 0\r\nTransfer-Encoding: chunked",
            "TRANSFER-ENCODING: identity",
            "Host: b.test",
            "Host: a.test:443\r\nHost: a.test:443",
            "Host: a.test\r\nHost: b.test",
            " folded: x",
            "no colon",
        ] {
            check(&format!("CONNECT a.test:443 HTTP/1.1\r\n{header}\r\n\r\n"), Err("tunnel_request_invalid"));
        }
        let many_headers = "X: y\r\n".repeat(MAX_HEADERS + 1);
        check(&format!("CONNECT a.test:443 HTTP/1.1\r\n{many_headers}\r\n"), Err("tunnel_request_invalid"));
        check("\x16\x03\x01 not http\r\n\r\n", Err("tunnel_request_invalid"));
    }

    #[test]
    fn an_incomplete_request_gives_none() {
        assert!(parse(b"CONNECT a.test:443 HTTP/1.1\r\nHost: a.test\r\n").unwrap().is_none());
    }
}
