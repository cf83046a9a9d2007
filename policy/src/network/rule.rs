//! One element of `hosts`: a scheme, a host or a pattern of hosts, and a port.

use std::{fmt, net::SocketAddr, str::FromStr};

use serde::{Serialize, Serializer};
use thiserror::Error;

use super::{Authority, HostName, InvalidHost, PrivateEndpoint, Scheme, UrlHost};

/// A rule of `hosts`, such as `https://api.example.com`, `https://*.example.com:8443` or `https://*`.
///
/// A name matches only itself. `*.` before a name matches all names below it at any depth, but not the name
/// itself. `*` matches every host. A rule without a port has the scheme's default port and does not cover
/// other ports.
///
/// A rule alone never allows an address that is not public: `allow_private` must list the address as well.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostRule {
    scheme: Scheme,
    hosts: HostPattern,
    port: u16,
}

/// The hosts of a rule.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum HostPattern {
    Exact(UrlHost),
    Subdomains(HostName),
    Any,
}

/// A text that is not a rule of `hosts`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidHostRule {
    /// The rule is too long.
    #[error("the rule is longer than {MAX_RULE_BYTES} bytes; write `https://` and a host")]
    TooLong,
    /// The rule does not start with `http://` or `https://`.
    #[error("a rule begins with `https://` or `http://`; write for example `https://api.example.com`")]
    Scheme,
    /// The rule has a user or a password.
    #[error("a rule has no user and no password; write `https://` and a host")]
    UserInfo,
    /// The rule has a path, a query or a fragment.
    #[error("a rule has no path, query or fragment: it grants a whole host; write `{0}`")]
    Path(String),
    /// The rule's port is not valid.
    #[error("`{0}` is not a port; write a number from 1 to 65535 without leading zeros, or leave it out")]
    Port(String),
    /// `*` is a part of a label, or is within the name.
    #[error(
        "`*` is the whole host or its first label; write `https://*`, or for example `https://*.example.com`"
    )]
    Wildcard,
    /// The rule's host is not valid.
    #[error("{0}")]
    Host(InvalidHost),
    /// The rule's address has another canonical form.
    #[error("the address is not in its normal form; write `{0}`")]
    Spelling(String),
}

impl HostRule {
    /// Returns whether the rule grants a request to this authority. The host's addresses are judged
    /// separately.
    #[must_use]
    pub fn covers(&self, target: &Authority) -> bool {
        self.scheme == target.scheme() && self.port == target.port() && self.covers_host(target.host())
    }

    /// Returns whether the rule grants this host with any scheme and port.
    #[must_use]
    pub fn covers_host(&self, host: &UrlHost) -> bool {
        match &self.hosts {
            HostPattern::Exact(granted) => granted == host,
            HostPattern::Subdomains(parent) => host.name().is_some_and(|name| name.is_below(parent.as_str())),
            HostPattern::Any => true,
        }
    }

    /// Returns whether this rule grants everything that another rule grants.
    #[must_use]
    pub fn covers_rule(&self, other: &Self) -> bool {
        self.scheme == other.scheme
            && self.port == other.port
            && match (&self.hosts, &other.hosts) {
                (HostPattern::Any, _) => true,
                (HostPattern::Exact(host), HostPattern::Exact(other)) => host == other,
                (HostPattern::Subdomains(parent), HostPattern::Exact(other)) => {
                    other.name().is_some_and(|name| name.is_below(parent.as_str()))
                }
                (HostPattern::Subdomains(parent), HostPattern::Subdomains(other)) => {
                    other.is_or_is_below(parent.as_str())
                }
                (HostPattern::Exact(_), HostPattern::Subdomains(_) | HostPattern::Any)
                | (HostPattern::Subdomains(_), HostPattern::Any) => false,
            }
    }

    /// Returns whether both rules grant some common request.
    #[must_use]
    pub fn overlaps(&self, other: &Self) -> bool {
        // The hosts of two rules are disjoint, or those of one contain those of the other.
        self.covers_rule(other) || other.covers_rule(self)
    }

    /// Returns whether both rules grant a common host, with any scheme and port.
    #[must_use]
    pub fn overlaps_host_of(&self, other: &Self) -> bool {
        self.overlaps(&Self { scheme: self.scheme, port: self.port, hosts: other.hosts.clone() })
    }

    /// Returns whether the rule matches every host.
    pub(crate) fn is_any_host(&self) -> bool {
        self.hosts == HostPattern::Any
    }

    /// Returns the endpoint that the rule names, if its host is an address.
    pub(crate) fn endpoint(&self) -> Option<PrivateEndpoint> {
        match &self.hosts {
            HostPattern::Exact(UrlHost::Address(address)) => {
                Some(PrivateEndpoint::Address(SocketAddr::new(address.to_canonical(), self.port)))
            }
            HostPattern::Exact(UrlHost::Name(_)) | HostPattern::Subdomains(_) | HostPattern::Any => None,
        }
    }

    /// Returns whether the rule's host is an address.
    #[must_use]
    pub fn is_address(&self) -> bool {
        matches!(self.hosts, HostPattern::Exact(UrlHost::Address(_)))
    }

    /// Returns the port.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the scheme.
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
        let scheme = Scheme::ALL.into_iter().find(|scheme_entry| scheme_entry.as_str() == scheme);
        let scheme = scheme.ok_or(InvalidHostRule::Scheme)?;
        // A backslash also ends the authority, because the URL standard reads it as a slash.
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
            (UrlHost::Name(name), Some(_)) => Ok(Self::Subdomains(name)),
            // `*.` before an address is a mistake, because no names lie below an address.
            (UrlHost::Address(_), Some(_)) => Err(InvalidHostRule::Wildcard),
            (host @ UrlHost::Address(_), None) if host.to_string() != text => {
                // The author of `https://0177.0.0.1` probably did not intend `127.0.0.1`.
                Err(InvalidHostRule::Spelling(host.to_string()))
            }
            (host, None) => Ok(Self::Exact(host)),
        }
    }
}

/// Splits the port from an authority without user info. A colon within brackets belongs to the address.
pub(super) fn split_port(authority: &str) -> (&str, Option<&str>) {
    let after_address = authority.rfind(']').map_or(0, |end| end + 1);
    match authority[after_address..].find(':') {
        Some(colon) => (&authority[..after_address + colon], Some(&authority[after_address + colon + 1..])),
        None => (authority, None),
    }
}

/// Parses a port in its only form: 1 to 65535, without a sign or leading zeros.
pub(super) fn parse_port(text: &str) -> Option<u16> {
    let port: u16 = text.parse().ok()?;
    // `parse` also accepts `+80` and `080`.
    (port != 0 && port.to_string() == text).then_some(port)
}

impl fmt::Display for HostRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://", self.scheme)?;
        match &self.hosts {
            HostPattern::Exact(host) => write!(f, "{host}")?,
            HostPattern::Subdomains(parent) => write!(f, "*.{parent}")?,
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

/// The maximum length of a rule in bytes: a name of 253 bytes with scheme and port, and room for some percent-encoding.
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
                let (_, target) = parse_url(url).expect(url);
                assert_eq!(rule(text).covers(&target), covers, "{text} {url}");
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
        for (text, expected) in [
            ("https://API.Example.com:443", "https://api.example.com"),
            ("http://*.example.com.:8080", "http://*.example.com:8080"),
            ("http://*:80", "http://*"),
            ("https://[::1]:8443", "https://[::1]:8443"),
        ] {
            assert_eq!(rule(text).to_string(), expected);
            assert_eq!(rule(expected), rule(text));
        }
    }

    #[test]
    fn rules_are_compared_by_what_they_grant() {
        for (wider, narrower) in [
            ("https://*", "https://*.example.com"),
            ("https://*", "https://127.0.0.1"),
            ("https://*.example.com", "https://a.example.com"),
            ("https://*.example.com", "https://*.a.example.com"),
        ] {
            assert!(
                rule(wider).covers_rule(&rule(narrower)) && rule(wider).covers_rule(&rule(wider)),
                "{wider} {narrower}"
            );
            assert!(!rule(narrower).covers_rule(&rule(wider)), "{wider} {narrower}");
        }
        for (rule_text, other_text) in [
            ("https://*", "http://*"),
            ("https://*", "https://*:8443"),
            ("https://*.example.com", "https://example.com"),
            ("https://*.example.com", "https://*.com"),
        ] {
            assert!(!rule(rule_text).covers_rule(&rule(other_text)), "{rule_text} {other_text}");
        }
    }

    #[test]
    fn a_text_that_is_not_a_rule_says_what_to_write() {
        for (text, part) in [
            ("api.example.com", "begins with `https://`"),
            ("HTTPS://a", "begins with `https://`"),
            ("ftp://a", "begins with `https://`"),
            ("*://a", "begins with `https://`"),
            ("https://user@a", "no user"),
            ("https://a/", "write `https://a`"),
            ("https://a?x", "write `https://a`"),
            ("https://a:0", "`0` is not a port"),
            ("https://a:080", "`080` is not a port"),
            ("https://a:", "`` is not a port"),
            ("https://a:*", "`*` is not a port"),
            ("https://a:65536", "`65536` is not a port"),
            ("https://a*", "is the whole host"),
            ("https://a.*.b", "is the whole host"),
            ("https://*.*.b", "is the whole host"),
            ("https://*.127.0.0.1", "is the whole host"),
            ("https://", "is not a host"),
            ("https://a b", "is not a host"),
            ("https://*.", "is not a host"),
            ("https://::1", "not a port"),
            ("https://0x7f.1", "write `127.0.0.1`"),
            ("https://[::0001]", "write `[::1]`"),
        ] {
            let error = text.parse::<HostRule>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
