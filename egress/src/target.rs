//! The target of a URL: scheme, host and port, checked to be of a kind that requests may use.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use url::{Host, Url};

use crate::FetchError;

/// A checked URL, split into the parts that requests need.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The host as [`Url::host_str`] writes it.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) kind: HostKind,
    /// The scheme, which decides whether TLS is used.
    pub(crate) scheme: Scheme,
    /// The value of the header `Host`.
    pub(crate) authority: HeaderValue,
    /// The path and query.
    pub(crate) path: Uri,
    /// The whole URL without fragment, for a proxy.
    pub(crate) whole_url: Uri,
}

/// A host: an address, or a name to resolve.
#[derive(Clone, Debug)]
pub(crate) enum HostKind {
    Address(IpAddr),
    /// The name, without a trailing dot.
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Target {
    /// Checks a URL. `ports` are the ports that requests may go to.
    pub(crate) fn parse(url: &Url, ports: &BTreeSet<u16>) -> Result<Self, FetchError> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            scheme => return Err(FetchError::Scheme { scheme: scheme.to_owned() }),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::UserInfo);
        }
        let unusable = || FetchError::UrlUnusable;
        let host = url.host_str().ok_or_else(unusable)?.to_owned();
        let kind = match url.host().ok_or_else(unusable)? {
            Host::Ipv4(address) => HostKind::Address(Ipv4Addr::into(address)),
            Host::Ipv6(address) => HostKind::Address(Ipv6Addr::into(address)),
            Host::Domain(name) => HostKind::Name(name.strip_suffix('.').unwrap_or(name).to_owned()),
        };
        let port = url.port_or_known_default().ok_or_else(unusable)?;
        if !ports.contains(&port) {
            return Err(FetchError::PortClosed { port });
        }
        let authority = match url.port() {
            Some(port) => format!("{host}:{port}"),
            None => host.clone(),
        };
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let whole_url = format!("{}://{authority}{path}", url.scheme());
        Ok(Self {
            host,
            port,
            kind,
            scheme,
            authority: HeaderValue::try_from(authority).map_err(|_invalid| unusable())?,
            path: Uri::try_from(path).map_err(|_invalid| unusable())?,
            whole_url: Uri::try_from(whole_url).map_err(|_invalid| unusable())?,
        })
    }

    /// Returns the name or address that the server's certificate must have.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, FetchError> {
        match &self.kind {
            HostKind::Address(address) => Ok(ServerName::from(*address)),
            HostKind::Name(name) => {
                ServerName::try_from(name.clone()).map_err(|_invalid| FetchError::UrlUnusable)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(url: &str, expected: Result<(&str, u16), &str>) {
        let target = Target::parse(&url.parse().unwrap(), &[80, 443, 8080].into());
        let host_and_port = target.as_ref().map(|target| (target.host.as_str(), target.port));
        assert_eq!(host_and_port.map_err(FetchError::code), expected, "{url}");
    }

    #[test]
    fn only_http_to_an_open_port_is_a_target() {
        check("http://host.test/", Ok(("host.test", 80)));
        check("https://host.test/a?b#c", Ok(("host.test", 443)));
        check("https://[::1]:8080/", Ok(("[::1]", 8080)));
        check("http://0x7f.1/", Ok(("127.0.0.1", 80)));
        check("http://host.test:81/", Err("port_closed"));
        check("http://host.test:0/", Err("port_closed"));
        check("ftp://host.test/", Err("scheme_forbidden"));
        check("file:///etc/passwd", Err("scheme_forbidden"));
        check("data:text/plain,x", Err("scheme_forbidden"));
        check("http://user@host.test/", Err("user_info_forbidden"));
        check("http://user:word@host.test/", Err("user_info_forbidden"));
    }

    #[test]
    fn a_fragment_is_not_sent() {
        let url = "http://host.test:8080/a%20b?c=%0d%0a#d".parse().unwrap();
        let target = Target::parse(&url, &[8080].into()).unwrap();
        assert_eq!(target.path, "/a%20b?c=%0d%0a");
        assert_eq!(target.whole_url, "http://host.test:8080/a%20b?c=%0d%0a");
        assert_eq!(target.authority, "host.test:8080");
    }

    #[test]
    fn a_path_that_begins_like_a_host_stays_a_path() {
        let target = Target::parse(&"http://host.test//other.test/a".parse().unwrap(), &[80].into()).unwrap();
        assert_eq!((target.path.host(), target.path.path()), (None, "//other.test/a"));
    }

    #[test]
    fn a_trailing_dot_is_not_part_of_a_certificate_name() {
        let target = Target::parse(&"https://host.test./".parse().unwrap(), &[443].into()).unwrap();
        assert_eq!(target.server_name().unwrap().to_str(), "host.test");
    }
}
