//! The place that a URL names: scheme, host and port, of the kinds that may be asked.

use std::{
    collections::BTreeSet,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

use http::{HeaderValue, Uri};
use rustls::pki_types::ServerName;
use url::{Host, Url};

use crate::FetchError;

/// A checked URL.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    /// The host as the URL writes it.
    pub(crate) host: String,
    pub(crate) port: u16,
    pub(crate) place: Place,
    /// Whether TLS is spoken.
    pub(crate) scheme: Scheme,
    /// The value of the header `Host`.
    pub(crate) authority: HeaderValue,
    /// Path and query.
    pub(crate) path: Uri,
    /// The whole address, as a proxy is told it.
    pub(crate) whole: Uri,
}

/// A host: its address, or the name that leads to addresses.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    Address(IpAddr),
    /// Without a trailing dot.
    Name(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scheme {
    Http,
    Https,
}

impl Target {
    /// `ports` are those that the threads may connect to.
    pub(crate) fn of(url: &Url, ports: &BTreeSet<u16>) -> Result<Self, FetchError> {
        let scheme = match url.scheme() {
            "http" => Scheme::Http,
            "https" => Scheme::Https,
            other => return Err(FetchError::Scheme { scheme: other.to_owned() }),
        };
        if !url.username().is_empty() || url.password().is_some() {
            return Err(FetchError::UserInfo);
        }
        let unusable = || FetchError::UrlUnusable;
        let host = url.host_str().ok_or_else(unusable)?.to_owned();
        let place = match url.host().ok_or_else(unusable)? {
            Host::Ipv4(address) => Place::Address(Ipv4Addr::into(address)),
            Host::Ipv6(address) => Place::Address(Ipv6Addr::into(address)),
            Host::Domain(name) => Place::Name(name.strip_suffix('.').unwrap_or(name).to_owned()),
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
        let whole = format!("{}://{authority}{path}", url.scheme());
        Ok(Self {
            host,
            port,
            place,
            scheme,
            authority: HeaderValue::try_from(authority).map_err(|_invalid| unusable())?,
            path: Uri::try_from(path).map_err(|_invalid| unusable())?,
            whole: Uri::try_from(whole).map_err(|_invalid| unusable())?,
        })
    }

    /// The name that the certificate must have.
    pub(crate) fn server_name(&self) -> Result<ServerName<'static>, FetchError> {
        match &self.place {
            Place::Address(address) => Ok(ServerName::from(*address)),
            Place::Name(name) => {
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
        let target = Target::of(&url.parse().unwrap(), &[80, 443, 8080].into());
        let found = target.as_ref().map(|target| (target.host.as_str(), target.port));
        assert_eq!(found.map_err(FetchError::code), expected, "{url}");
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
        let target = Target::of(&url, &[8080].into()).unwrap();
        assert_eq!(target.path, "/a%20b?c=%0d%0a");
        assert_eq!(target.whole, "http://host.test:8080/a%20b?c=%0d%0a");
        assert_eq!(target.authority, "host.test:8080");
    }

    #[test]
    fn a_path_that_begins_like_a_host_stays_a_path() {
        let target = Target::of(&"http://host.test//other.test/a".parse().unwrap(), &[80].into()).unwrap();
        assert_eq!((target.path.host(), target.path.path()), (None, "//other.test/a"));
    }

    #[test]
    fn a_trailing_dot_is_no_part_of_a_certificate_name() {
        let target = Target::of(&"https://host.test./".parse().unwrap(), &[443].into()).unwrap();
        assert_eq!(target.server_name().unwrap().to_str(), "host.test");
    }
}
