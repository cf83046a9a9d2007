//! `[egress]`: the settings for the requests of every profile.

use std::{
    collections::BTreeSet,
    fmt,
    net::{IpAddr, SocketAddr},
    str::FromStr,
};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

use crate::limits::{GIB, KIB, LimitBounds, MIB, format_in_largest_unit};

use super::{
    HostName, ProxyAddress, UrlHost,
    address::{is_metadata_name, reason_not_public},
    rule::{parse_port, split_port},
};

/// `[egress]`, with every default filled in. [`EgressSettings::default`] is the source of truth for the
/// defaults. The shipped policy and the documents repeat them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct EgressSettings {
    /// Endpoints that may be reached although their addresses are not public. An entry grants no host by itself: a
    /// profile's `hosts` must cover the request too. Default: none.
    pub allow_private: BTreeSet<PrivateEndpoint>,
    /// The file of further trusted certificates in PEM (RFC 7468), as the operator wrote it: absolute, or
    /// relative to the policy file. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<String>,
    /// The proxy that all connections go through. Default: none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyAddress>,
    /// The maximum number of bytes of a response's body, before decompression and again after it; 1 KiB to 1 GiB.
    /// Default: 10 MiB.
    #[serde(rename = "max_response_bytes")]
    pub max_response: ResponseBytes,
    /// The maximum number of redirects that one request follows; 0 to 20. Default: 5.
    pub max_redirects: u32,
    /// Whether `web_fetch` obeys a host's `robots.txt`. Default: it obeys.
    pub robots: Robots,
}

portcullis_types::word_enum! {
    /// Whether `web_fetch` obeys a host's `robots.txt` (RFC 9309).
    #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
    pub enum Robots {
        /// `web_fetch` requests the `robots.txt`, and does not request a page that the file disallows.
        Obey = "obey",
        /// `web_fetch` does not request the `robots.txt`.
        Ignore = "ignore",
    }
}

impl Default for EgressSettings {
    fn default() -> Self {
        Self {
            allow_private: BTreeSet::new(),
            ca: None,
            proxy: None,
            max_response: ResponseBytes(10 * MIB),
            max_redirects: 5,
            robots: Robots::Obey,
        }
    }
}

/// A length of a response's body, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct ResponseBytes(pub u64);

/// One element of `allow_private`: an address with a port, or the name of a metadata service with a port.
///
/// Any other name is refused: its owner controls its address, so listing it would allow every address.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PrivateEndpoint {
    /// An address in its canonical form, and a port other than 0.
    Address(SocketAddr),
    /// The name of a metadata service, and a port other than 0. Its address must be listed as well.
    Name(HostName, u16),
}

/// A text that is not an element of `allow_private`.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidPrivateEndpoint {
    /// The text is not an address with a port.
    #[error("`{}` is not an address with a port; write for example `127.0.0.1:8080` or `[::1]:8080`", .0.escape_default())]
    Form(String),
    /// The text's address has another canonical form.
    #[error("the address is not in its normal form; write `{0}`")]
    Spelling(SocketAddr),
    /// The text is a name. Its owner could make it lead to any address.
    #[error("`{0}` is a host name, and its owner can point it at any address; write the address and port")]
    Name(HostName),
}

impl PrivateEndpoint {
    /// Returns whether the endpoint's address is public, so that the entry allows nothing new.
    pub(crate) fn is_public(&self) -> bool {
        match self {
            Self::Address(address) => reason_not_public(address.ip()).is_none(),
            Self::Name(..) => false,
        }
    }
}

impl FromStr for PrivateEndpoint {
    type Err = InvalidPrivateEndpoint;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let form = || InvalidPrivateEndpoint::Form(text.chars().take(MAX_SHOWN_CHARS).collect());
        let (host, port) = split_port(text);
        let port = port.and_then(parse_port).ok_or_else(form)?;
        match UrlHost::parse(host).ok().ok_or_else(form)? {
            UrlHost::Address(address) => {
                let canonical = SocketAddr::new(address.to_canonical(), port);
                if is_canonical_form(address, host) && canonical.ip() == address {
                    Ok(Self::Address(canonical))
                } else {
                    Err(InvalidPrivateEndpoint::Spelling(canonical))
                }
            }
            UrlHost::Name(name) if is_metadata_name(&name) => Ok(Self::Name(name, port)),
            UrlHost::Name(name) => Err(InvalidPrivateEndpoint::Name(name)),
        }
    }
}

/// Returns whether `host` is the canonical form of the address.
fn is_canonical_form(address: IpAddr, host: &str) -> bool {
    UrlHost::Address(address).to_string() == host
}

impl fmt::Display for PrivateEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Address(address) => write!(f, "{}:{}", UrlHost::Address(address.ip()), address.port()),
            Self::Name(name, port) => write!(f, "{name}:{port}"),
        }
    }
}

impl Serialize for PrivateEndpoint {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for PrivateEndpoint {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

impl fmt::Display for ResponseBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_in_largest_unit(self.0))
    }
}

/// The bounds of `max_response`.
pub(crate) const RESPONSE_BOUNDS: LimitBounds<u64> = LimitBounds { min: KIB, max: GIB };

/// The bounds of `max_redirects`. Zero means that redirects are not followed. Browsers stop after 20 (WHATWG Fetch,
/// section 4.4).
pub(crate) const REDIRECT_BOUNDS: LimitBounds<u64> = LimitBounds { min: 0, max: 20 };

/// The maximum number of characters of a refused text that a fault repeats.
const MAX_SHOWN_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_addresses_or_metadata_names_with_a_port() {
        for text in ["127.0.0.1:8080", "[::1]:443", "[64:ff9b::a9fe:a9fe]:80", "metadata.google.internal:80"]
        {
            assert_eq!(text.parse::<PrivateEndpoint>().expect(text).to_string(), text);
        }
        for (text, part) in [
            ("127.0.0.1", "is not an address with a port"),
            ("127.0.0.1:0", "is not an address with a port"),
            ("::1:80", "is not an address with a port"),
            ("http://127.0.0.1:80", "is not an address with a port"),
            ("127.0.0.0/8:80", "is not an address with a port"),
            ("[fe80::1%1]:80", "is not an address with a port"),
            ("*:80", "is not an address with a port"),
            ("127.1:80", "write `127.0.0.1:80`"),
            ("[::ffff:127.0.0.1]:80", "write `127.0.0.1:80`"),
            ("localhost:80", "`localhost` is a host name"),
        ] {
            let error = text.parse::<PrivateEndpoint>().expect_err(text).to_string();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}
