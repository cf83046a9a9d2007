//! `Address`: the address of a gateway, from which the URLs of its interface are built.

use http::Uri;
use url::{Host, Url};

use crate::{AddressFault, ClientError};

/// The maximum length of an id, in bytes.
const MAX_ID_BYTES: usize = 200;

/// Whether addresses without TLS are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PlainHttp {
    /// Only for hosts of this machine.
    OnThisMachine,
    /// For all hosts.
    Everywhere,
}

/// The checked address of a gateway.
#[derive(Debug, Clone)]
pub(crate) struct Address(Url);

impl Address {
    /// # Errors
    /// [`ClientError::NoUrl`], [`ClientError::Address`] and [`ClientError::PlainHttp`]. None of them contains
    /// the text of the address, which could include a password.
    pub(crate) fn new(text: &str, plain: PlainHttp) -> Result<Self, ClientError> {
        let url = Url::parse(text).map_err(|source| ClientError::NoUrl { source })?;
        let refuse = |fault| Err(ClientError::Address { fault });
        if !matches!(url.scheme(), "http" | "https") {
            return refuse(AddressFault::Scheme);
        }
        if !url.username().is_empty() || url.password().is_some() {
            return refuse(AddressFault::Credentials);
        }
        if url.query().is_some() || url.fragment().is_some() {
            return refuse(AddressFault::Suffix);
        }
        let host = url.host_str().unwrap_or_default();
        if url.scheme() == "http" && plain == PlainHttp::OnThisMachine && !is_this_machine(&url) {
            return Err(ClientError::PlainHttp { host: host.to_owned() });
        }
        Ok(Self(url))
    }

    /// Returns whether requests need TLS.
    pub(crate) fn needs_tls(&self) -> bool {
        self.0.scheme() == "https"
    }

    pub(crate) fn as_str(&self) -> &str {
        self.0.as_str()
    }

    /// Returns the URL of a path of the interface, with a query.
    ///
    /// # Errors
    /// [`ClientError::Address`] if the address has characters that HTTP does not carry.
    pub(crate) fn uri(&self, path: &[&str], query: &[(&str, &str)]) -> Result<Uri, ClientError> {
        let mut url = self.0.clone();
        let fault = AddressFault::Characters;
        match url.path_segments_mut() {
            Ok(mut segments) => segments.pop_if_empty().extend(path),
            // http:// and https:// always have a path.
            Err(()) => return Err(ClientError::Address { fault }),
        };
        if !query.is_empty() {
            url.query_pairs_mut().extend_pairs(query);
        }
        // Drop the source: it only says that a character is wrong.
        url.as_str().parse().map_err(|_invalid: http::uri::InvalidUri| ClientError::Address { fault })
    }
}

/// Refuses a text that cannot be an id before it becomes part of a path. `.` and `..` would lead to another
/// path.
///
/// # Errors
/// [`ClientError::Id`] if the text is empty, too long, `.` or `..`, or has characters that no id has.
pub(crate) fn check_id(subject: &'static str, id: &str) -> Result<(), ClientError> {
    let is_id = (1..=MAX_ID_BYTES).contains(&id.len())
        && !matches!(id, "." | "..")
        && id.bytes().all(|byte| byte.is_ascii_graphic());
    if is_id { Ok(()) } else { Err(ClientError::Id { subject }) }
}

fn is_this_machine(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost",
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn uri(address: &str, path: &[&str], query: &[(&str, &str)]) -> String {
        let address = Address::new(address, PlainHttp::OnThisMachine).expect("an address");
        address.uri(path, query).expect("a URI").to_string()
    }

    #[test]
    fn paths_are_below_the_address() {
        assert_eq!(uri("https://h", &["api", "calls"], &[]), "https://h/api/calls");
        assert_eq!(uri("https://h/", &["api", "calls"], &[]), "https://h/api/calls");
        assert_eq!(uri("https://h:9/a/b/", &["api"], &[]), "https://h:9/a/b/api");
        assert_eq!(uri("https://h", &["a/b?c#d%"], &[]), "https://h/a%2Fb%3Fc%23d%25");
        assert_eq!(uri("https://h", &["a"], &[("b", "c&d=e é")]), "https://h/a?b=c%26d%3De+%C3%A9");
    }

    #[test]
    fn plain_http_is_for_this_machine() {
        let allowed = [
            "http://localhost:8810",
            "http://LOCALHOST",
            "http://127.0.0.1",
            "http://127.9.9.9",
            "http://0x7f.1",
            "http://[::1]:1",
            "https://gateway.example",
        ];
        for text in allowed {
            Address::new(text, PlainHttp::OnThisMachine).expect(text);
        }
        let refused = [
            "http://gateway.example",
            "http://10.0.0.1",
            "http://0.0.0.0",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://[::ffff:10.0.0.1]",
            "http://[fe80::1]",
        ];
        for text in refused {
            let error = Address::new(text, PlainHttp::OnThisMachine).expect_err(text);
            assert!(matches!(error, ClientError::PlainHttp { .. }), "{text}: {error:?}");
            Address::new(text, PlainHttp::Everywhere).expect(text);
        }
    }

    #[test]
    fn addresses_that_cannot_be_used_are_refused_without_their_text() {
        for text in [
            "",
            "gateway",
            "https://",
            "ftp://h",
            "https://me:pass@h",
            "https://h?token=pass",
            "https://h#pass",
        ] {
            let error = Address::new(text, PlainHttp::Everywhere).expect_err(text);
            assert!(
                matches!(error, ClientError::NoUrl { .. } | ClientError::Address { .. }),
                "{text}: {error:?}"
            );
            assert!(!format!("{error:?} {error}").contains("pass@"), "{error:?}");
            assert!(!format!("{error:?}").contains("=pass"), "{error:?}");
        }
    }

    #[test]
    fn ids_stay_one_part_of_a_path() {
        check_id("run", "run_0123/..").expect("the slash is escaped");
        for id in ["", ".", "..", "a b", "a\n", "é", &"x".repeat(201)] {
            check_id("run", id).expect_err(id);
        }
    }
}
