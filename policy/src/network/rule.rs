//! One element of `hosts`: a scheme, a host or a pattern of hosts, and a port.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::{Authority, HostName, InvalidHost, PrivateEndpoint, Scheme, UrlHost};

/// A rule of `hosts`, as `https://api.example.com`, `https://*.example.com:8443` or `https://*`.
///
/// A name stands for itself, `*.` before a name for all names below it at any depth and not for the name
/// itself, `*` for every host. A rule without a port has the scheme's default port, not every port.
///
/// A rule grants a name, and never an address that is not public: those stand in `allow_private`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRule {
    scheme: Scheme,
    hosts: HostPattern,
    port: u16,
}

/// The hosts of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum HostPattern {
    One(UrlHost),
    Below(HostName),
    Any,
}

/// A text that is no rule of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidHostRule {
    /// It is too long.
    #[error("a rule of more than {MAX_RULE_BYTES} bytes; write `https://` and a host")]
    TooLong,
    /// It does not begin with a scheme of HTTP.
    #[error("a rule begins with `https://` or `http://`; write such as `https://api.example.com`")]
    Scheme,
    /// It has a user or a password.
    #[error("a rule has no user and no password; write `https://` and a host")]
    UserInfo,
    /// It has a path, a query or a fragment.
    #[error("a rule has no path, query or fragment: it grants a whole host; write `{0}`")]
    Path(String),
    /// Its port is none.
    #[error("`{0}` is no port; write a number from 1 to 65535 without leading zeros, or leave it out")]
    Port(String),
    /// `*` stands for a part of a label, or within the name.
    #[error(
        "`*` stands alone or before the first dot; write `https://*`, or such as `https://*.example.com`"
    )]
    Wildcard,
    /// Its host is none.
    #[error("{0}")]
    Host(InvalidHost),
    /// Its address has another canonical form.
    #[error("the address has another form; write `{0}`")]
    Spelling(String),
}

impl HostRule {
    /// Whether the rule grants a request to this authority. The address is judged separately.
    #[must_use]
    pub fn covers(&self, to: &Authority) -> bool {
        self.scheme == to.scheme() && self.port == to.port() && self.covers_host(to.host())
    }

    /// Whether the rule grants this host by some scheme and port.
    #[must_use]
    pub fn covers_host(&self, host: &UrlHost) -> bool {
        match &self.hosts {
            HostPattern::One(own) => own == host,
            HostPattern::Below(parent) => host.name().is_some_and(|name| name.is_below(parent.as_str())),
            HostPattern::Any => true,
        }
    }

    /// Whether everything that another rule grants is granted by this one.
    #[must_use]
    pub fn covers_rule(&self, other: &Self) -> bool {
        self.scheme == other.scheme
            && self.port == other.port
            && match (&self.hosts, &other.hosts) {
                (HostPattern::Any, _) => true,
                (HostPattern::One(host), HostPattern::One(other)) => host == other,
                (HostPattern::Below(parent), HostPattern::One(other)) => {
                    other.name().is_some_and(|name| name.is_below(parent.as_str()))
                }
                (HostPattern::Below(parent), HostPattern::Below(other)) => {
                    other.is_or_is_below(parent.as_str())
                }
                (HostPattern::One(_), HostPattern::Below(_) | HostPattern::Any)
                | (HostPattern::Below(_), HostPattern::Any) => false,
            }
    }

    /// Whether it stands for every host.
    pub(crate) fn is_any_host(&self) -> bool {
        self.hosts == HostPattern::Any
    }

    /// The endpoint that it names, if its host is written as an address.
    pub(crate) fn endpoint(&self) -> Option<PrivateEndpoint> {
        match &self.hosts {
            HostPattern::One(UrlHost::Address(address)) => {
                Some(PrivateEndpoint::Address(SocketAddr::new(address.to_canonical(), self.port)))
            }
            HostPattern::One(UrlHost::Name(_)) | HostPattern::Below(_) | HostPattern::Any => None,
        }
    }

    /// Whether its host is an address.
    #[must_use]
    pub fn is_address(&self) -> bool {
        matches!(self.hosts, HostPattern::One(UrlHost::Address(_)))
    }

    /// The port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The scheme.
    #[must_use]
    pub fn scheme(&self) -> Scheme {
        self.scheme
    }
}

impl FromStr for HostRule {
    type Err = InvalidHostRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_RULE_BYTES {
            return Err(InvalidHostRule::TooLong);
        }
        let (scheme, rest) = text.split_once("://").ok_or(InvalidHostRule::Scheme)?;
        let scheme = Scheme::ALL.into_iter().find(|known| known.as_str() == scheme);
        let scheme = scheme.ok_or(InvalidHostRule::Scheme)?;
        let (authority, path) = rest.split_at(rest.find(['/', '\\', '?', '#']).unwrap_or(rest.len()));
        if authority.contains('@') {
            return Err(InvalidHostRule::UserInfo);
        }
        if !path.is_empty() {
            return Err(InvalidHostRule::Path(format!("{scheme}://{}", authority.escape_default())));
        }
        let (host, port) = split_port(authority);
        let port = match port {
            None => scheme.default_port(),
            Some(port) => {
                parse_port(port).ok_or_else(|| InvalidHostRule::Port(port.escape_default().to_string()))?
            }
        };
        Ok(Self { scheme, hosts: HostPattern::parse(host)?, port })
    }
}

impl HostPattern {
    fn parse(text: &str) -> Result<Self, InvalidHostRule> {
        if text == "*" {
            return Ok(Self::Any);
        }
        let parent = text.strip_prefix("*.");
        if parent.unwrap_or(text).contains('*') {
            return Err(InvalidHostRule::Wildcard);
        }
        match (UrlHost::parse(parent.unwrap_or(text)).map_err(InvalidHostRule::Host)?, parent) {
            (UrlHost::Name(name), Some(_)) => Ok(Self::Below(name)),
            // Nothing lies below an address.
            (UrlHost::Address(_), Some(_)) => Err(InvalidHostRule::Wildcard),
            (host @ UrlHost::Address(_), None) if host.to_string() != text => {
                // `https://0177.0.0.1` is hardly what its author means.
                Err(InvalidHostRule::Spelling(host.to_string()))
            }
            (host, None) => Ok(Self::One(host)),
        }
    }
}

/// Splits the port from an authority without user info. A colon in brackets belongs to an address.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    let after_address = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_address..].find(':') {
        Some(at) => (&authority[..after_address + at], Some(&authority[after_address + at + 1..])),
        None => (authority, None),
    }
}

/// Parses a port in its only form.
pub(super) fn parse_port(text: &str) -> Option<u16> {
    let port: u16 = text.parse().ok()?;
    // `parse` takes `+80` and `080` as well.
    (port != 0 && port.to_string() == text).then_some(port)
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match &self.hosts {
            HostPattern::One(host) => write!(f, "{host}")?,
            HostPattern::Below(parent) => write!(f, "*.{parent}")?,
            HostPattern::Any => f.write_str("*")?,
        }
        if self.port == self.scheme.default_port() { Ok(()) } else { write!(f, ":{}", self.port) }
    }
}

impl Serialize for HostRule {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The longest rule: a name of 253 bytes with scheme and port, written with some percent-encoding.
const MAX_RULE_BYTES: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::network::url_text::parse_url;

    fn rule(text: &str) -> HostRule {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[track_caller]
    fn check(text: &str, granted: &[&str], refused: &[&str]) {
        for (urls, covers) in [(granted, true), (refused, false)] {
            for url in urls {
                let (_, to) = parse_url(url).expect(url);
                assert_eq!(rule(text).covers(&to), covers, "{text} {url}");
            }
        }
    }

    #[test]
    fn a_rule_covers_its_scheme_host_and_port() {
        check(
            "https://api.example.com",
            &[
                "https://api.example.com/",
                "https://API.example.com.:443/x?y#z",
                "https://api.example.com:443",
            ],
            &[
                "http://api.example.com",
                "http://api.example.com:443",
                "https://api.example.com:8443",
                "https://example.com",
                "https://x.api.example.com",
                "https://api.example.com.evil.test",
                "https://xapi.example.com",
            ],
        );
        check(
            "https://*.example.com:8443",
            &["https://a.example.com:8443", "https://a.b.example.com:8443"],
            &[
                "https://example.com:8443",
                "https://a.example.com",
                "https://aexample.com:8443",
                "https://example.com.evil.test:8443",
                "https://1.2.3.4:8443",
            ],
        );
        check(
            "https://*",
            &["https://a", "https://8.8.8.8", "https://[2606:4700::1]"],
            &["http://a", "https://a:1"],
        );
        check(
            "http://127.0.0.1:8080",
            &["http://2130706433:8080"],
            &["http://127.0.0.1", "http://[::1]:8080"],
        );
        check("https://b\u{fc}cher.example", &["https://xn--bcher-kva.example"], &["https://bucher.example"]);
    }

    #[test]
    fn a_rule_is_shown_in_its_canonical_form() {
        for (text, shown) in [
            ("https://API.Example.com:443", "https://api.example.com"),
            ("http://*.example.com.:8080", "http://*.example.com:8080"),
            ("http://*:80", "http://*"),
            ("https://[::1]:8443", "https://[::1]:8443"),
        ] {
            assert_eq!(rule(text).to_string(), shown);
            assert_eq!(rule(shown), rule(text));
        }
    }

    #[test]
    fn rules_are_compared_by_what_they_grant() {
        for (wide, narrow) in [
            ("https://*", "https://*.example.com"),
            ("https://*", "https://127.0.0.1"),
            ("https://*.example.com", "https://a.example.com"),
            ("https://*.example.com", "https://*.a.example.com"),
        ] {
            assert!(
                rule(wide).covers_rule(&rule(narrow)) && rule(wide).covers_rule(&rule(wide)),
                "{wide} {narrow}"
            );
            assert!(!rule(narrow).covers_rule(&rule(wide)), "{wide} {narrow}");
        }
        for (one, other) in [
            ("https://*", "http://*"),
            ("https://*", "https://*:8443"),
            ("https://*.example.com", "https://example.com"),
            ("https://*.example.com", "https://*.com"),
        ] {
            assert!(!rule(one).covers_rule(&rule(other)), "{one} {other}");
        }
    }

    #[test]
    fn a_text_that_is_no_rule_says_what_to_write() {
        for (text, part) in [
            ("api.example.com", "begins with `https://`"),
            ("HTTPS://a", "begins with `https://`"),
            ("ftp://a", "begins with `https://`"),
            ("*://a", "begins with `https://`"),
            ("https://user@a", "no user"),
            ("https://a/", "write `https://a`"),
            ("https://a?x", "write `https://a`"),
            ("https://a:0", "`0` is no port"),
            ("https://a:080", "`080` is no port"),
            ("https://a:", "`` is no port"),
            ("https://a:*", "`*` is no port"),
            ("https://a:65536", "`65536` is no port"),
            ("https://a*", "stands alone"),
            ("https://a.*.b", "stands alone"),
            ("https://*.*.b", "stands alone"),
            ("https://*.127.0.0.1", "stands alone"),
            ("https://", "is no host"),
            ("https://a b", "is no host"),
            ("https://*.", "is no host"),
            ("https://::1", "no port"),
            ("https://0x7f.1", "write `127.0.0.1`"),
            ("https://[::0001]", "write `[::1]`"),
        ] {
            let error = text.parse::<HostRule>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
