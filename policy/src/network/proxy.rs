//! The proxy of `[egress]`, through which the HTTP client makes every connection.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;
use url::Url;

use super::{Authority, InvalidUrl, Scheme, url_text::parse_url};

/// The address of the operator's proxy: `http://`, a name or an address, and a port. The proxy by itself
/// grants nothing, and its address need not be public.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ProxyAddress {
    url: Url,
    authority: Authority,
}

impl ProxyAddress {
    /// Returns the address as a URL without user, path, query and fragment.
    #[must_use]
    pub fn url(&self) -> &Url {
        &self.url
    }
}

/// A text that is not the address of a proxy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidProxy {
    /// The text is not a URL that a request may have.
    #[error("{0}; write for example `http://proxy.example:3128`")]
    Url(InvalidUrl),
    /// The URL has a user or a password, which every reader of the policy would see.
    #[error("a proxy with credentials is not supported: leave out user and password")]
    Credentials,
    /// The URL has the scheme `https`.
    #[error(
        "connections to a proxy do not use TLS; write `http://`. Connections through the proxy still use TLS to the server"
    )]
    Scheme,
    /// The URL has a path, a query or a fragment.
    #[error("a proxy is a host and a port; write `{0}`")]
    ExtraParts(String),
}

impl FromStr for ProxyAddress {
    type Err = InvalidProxy;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (url, authority) = parse_url(text).map_err(|error| {
            if error == InvalidUrl::UserInfo { InvalidProxy::Credentials } else { InvalidProxy::Url(error) }
        })?;
        if authority.scheme() != Scheme::Http {
            return Err(InvalidProxy::Scheme);
        }
        // Search the text for `#`, because the parser of requests drops a fragment.
        if url.path() != "/" || url.query().is_some() || text.contains('#') {
            return Err(InvalidProxy::ExtraParts(authority.to_string()));
        }
        Ok(Self { url, authority })
    }
}

/// Writes the address as a URL, without the port 80.
impl fmt::Display for ProxyAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.authority.fmt(f)
    }
}

impl Serialize for ProxyAddress {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for ProxyAddress {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proxy_is_a_host_and_a_port() {
        for (text, expected) in [
            ("http://proxy.example:3128", "http://proxy.example:3128"),
            ("HTTP://Proxy.Example:3128/", "http://proxy.example:3128"),
            ("http://10.0.0.1:8080", "http://10.0.0.1:8080"),
            ("http://[fd00::1]:8080", "http://[fd00::1]:8080"),
            ("http://proxy.example", "http://proxy.example"),
        ] {
            assert_eq!(text.parse::<ProxyAddress>().expect(text).to_string(), expected);
        }
        for (text, part) in [
            ("https://proxy.example:3128", "do not use TLS"),
            ("http://user@proxy.example:3128", "leave out user and password"),
            ("http://user:word@proxy.example:3128", "leave out user and password"),
            ("http://proxy.example:3128/path", "write `http://proxy.example:3128`"),
            ("http://proxy.example:3128/?query", "write `http://proxy.example:3128`"),
            ("http://proxy.example:3128/#", "write `http://proxy.example:3128`"),
            ("http://proxy.example:0", "a number from 1 to 65535"),
            ("socks5://proxy.example:1080", "write for example"),
            ("proxy.example:3128", "write for example"),
            ("", "write for example"),
        ] {
            let error = text.parse::<ProxyAddress>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
