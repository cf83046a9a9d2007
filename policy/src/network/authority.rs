//! The authority of a URL: scheme, host and port, each in one canonical form, so that two spellings of one
//! authority are equal values.

use std::{
    fmt,
    net::{IpAddr, Ipv6Addr},
    sync::Arc,
};

use serde::Serialize;
use thiserror::Error;

portcullis_types::word_enum! {
    /// The schemes that a request may have.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    pub enum Scheme as "scheme" {
        /// HTTP without encryption.
        Http = "http",
        /// HTTP over TLS.
        Https = "https",
    }
}

impl Scheme {
    /// Returns the port of a URL that names none: 80 or 443 (RFC 9110, section 4.2).
    #[must_use]
    pub const fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

/// The host of a URL: a name or an address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum UrlHost {
    /// A name that must be resolved.
    Name(HostName),
    /// An IP address, which needs no resolution.
    Address(IpAddr),
}

/// The name of a host in lower case, with internationalised labels as Punycode, and without a trailing dot. Labels have
/// 1 to 63 characters of `a`–`z`, `0`–`9`, `-` and `_` and are joined by dots; the whole name has at most 253
/// characters (RFC 1035, section 2.3.4).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostName(Arc<str>);

/// A text that is not a host.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error(
    "`{}` is not a host: write a name such as `api.example.com`, or an address such as `192.0.2.1` or `[2001:db8::1]`",
    .0.escape_default()
)]
pub struct InvalidHost(pub String);

/// The destination of a request: scheme, host and port. Two requests with equal authorities have the same
/// origin (RFC 6454).
///
/// [`Display`](fmt::Display) writes the origin as a URL, without the scheme's default port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Authority {
    scheme: Scheme,
    host: UrlHost,
    port: u16,
}

impl UrlHost {
    /// Parses a host by the WHATWG URL standard: `0x7f.1` becomes `127.0.0.1`, and `BÜCHER.example.` becomes
    /// `xn--bcher-kva.example`. An IPv6 address has brackets.
    ///
    /// # Errors
    /// [`InvalidHost`] with the text.
    pub fn parse(text: &str) -> Result<Self, InvalidHost> {
        let invalid = || InvalidHost(text.chars().take(MAX_SHOWN_CHARS).collect());
        // The parser fails at a forbidden character instead of dropping it. Its error would not help the
        // reader.
        let host = url::Host::parse(text).ok().ok_or_else(invalid)?;
        match host {
            url::Host::Domain(name) => HostName::canonical(&name).map(Self::Name).ok_or_else(invalid),
            url::Host::Ipv4(address) => Ok(Self::Address(address.into())),
            url::Host::Ipv6(address) => Ok(Self::Address(address.into())),
        }
    }

    /// Returns the name, or `None` for an address.
    #[must_use]
    pub fn name(&self) -> Option<&HostName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Address(_) => None,
        }
    }
}

impl HostName {
    /// Returns the name in canonical form, or `None` if it has none. The text must have passed
    /// `url::Host::parse`.
    fn canonical(text: &str) -> Option<Self> {
        let name = text.strip_suffix('.').unwrap_or(text);
        let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_');
        let is_label = |label: &str| {
            (1..=MAX_LABEL_BYTES).contains(&label.len())
                && label.bytes().all(is_allowed)
                && !label.starts_with('-')
                && !label.ends_with('-')
        };
        (name.len() <= MAX_NAME_BYTES && name.split('.').all(is_label)).then(|| Self(name.into()))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns whether this name equals another name, or lies below it at any depth.
    pub(crate) fn is_or_is_below(&self, ancestor: &str) -> bool {
        self.as_str() == ancestor || self.is_below(ancestor)
    }

    /// Returns whether this name lies below another name at any depth.
    pub(crate) fn is_below(&self, ancestor: &str) -> bool {
        self.0.strip_suffix(ancestor).is_some_and(|labels| labels.len() > 1 && labels.ends_with('.'))
    }
}

impl Authority {
    pub(crate) fn new(scheme: Scheme, host: UrlHost, port: u16) -> Self {
        Self { scheme, host, port }
    }

    /// Returns the scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }

    /// Returns the host. It is also the server's name in TLS and in the header `Host`.
    #[must_use]
    pub fn host(&self) -> &UrlHost {
        &self.host
    }

    /// Returns the port. It is never 0.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }
}

impl fmt::Display for HostName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl fmt::Display for UrlHost {
    /// Writes the host as in a URL, with brackets around an IPv6 address.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Address(IpAddr::V4(address)) => address.fmt(f),
            // The standard library formats some addresses with an embedded IPv4 address. The URL standard
            // does not.
            Self::Address(IpAddr::V6(address)) => bracketed(*address).fmt(f),
        }
    }
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.host)?;
        if self.port == self.scheme.default_port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

/// Returns an IPv6 address as the URL standard writes it.
fn bracketed(address: Ipv6Addr) -> url::Host<&'static str> {
    url::Host::Ipv6(address)
}

/// The maximum length of a label in bytes (RFC 1035, section 2.3.4).
const MAX_LABEL_BYTES: usize = 63;

/// The maximum length of a name in bytes, without its trailing dot (RFC 1035, section 2.3.4).
const MAX_NAME_BYTES: usize = 253;

/// The maximum number of characters of a refused host that a fault repeats.
const MAX_SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(UrlHost::parse(text).expect(text).to_string(), expected, "{text}");
    }

    #[test]
    fn spellings_of_one_host_have_one_form() {
        check("API.Example.com", "api.example.com");
        check("api.example.com.", "api.example.com");
        check("B\u{fc}CHER.example", "xn--bcher-kva.example");
        check("ex\u{ff0e}ample", "ex.ample");
        check("a%2eb", "a.b");
        check("_dmarc.example", "_dmarc.example");
        for spelling in
            ["127.0.0.1", "0x7f.1", "0177.0.0.1", "2130706433", "127.1", "127.0.0.1.", "0x7f000001"]
        {
            check(spelling, "127.0.0.1");
        }
        check("[0:0:0:0:0:0:0:1]", "[::1]");
        check("[::FFFF:127.0.0.1]", "[::ffff:7f00:1]");
    }

    #[test]
    fn texts_that_are_not_hosts_are_refused() {
        let long_label = format!("{}.example", "a".repeat(64));
        let long_name = ["a"; 128].join(".");
        for invalid in [
            "",
            ".",
            "..",
            "a..b",
            "a..",
            ".a",
            "a b",
            "a/b",
            "a@b",
            "a:1",
            "a\0",
            "a\n",
            "*.a",
            "a*",
            "-a",
            "a-",
            "1.2.3.4.5",
            "256.1.1.1",
            "foo.1",
            "[::1",
            "::1",
            "[::1%25eth0]",
            "a%00",
            "a,b",
            "(a)",
            &long_label,
            &long_name,
        ] {
            assert!(UrlHost::parse(invalid).is_err(), "{invalid:?}");
        }
    }

    #[test]
    fn a_name_is_below_its_ancestors_only() {
        let name = |text| match UrlHost::parse(text) {
            Ok(UrlHost::Name(name)) => name,
            other => panic!("{other:?}"),
        };
        assert!(name("a.b.example").is_below("example") && name("a.b.example").is_below("b.example"));
        for ancestor in ["a.b.example", "xample", "x.example", "example.a.b.example"] {
            assert!(!name("a.b.example").is_below(ancestor), "{ancestor}");
        }
        assert!(name("example").is_or_is_below("example"));
    }
}
