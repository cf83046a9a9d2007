//! The rules for a URL's text. The WHATWG parser repairs many faults, so two readers of one text may see
//! different hosts. Texts with a known ambiguity are therefore refused before they are parsed.

use thiserror::Error;
use url::Url;

use super::{Authority, Scheme, UrlHost};

/// The maximum length of a URL in bytes: 8 KiB, above the 8,000 bytes that RFC 9110, section 4.1, recommends
/// as a minimum.
pub const MAX_URL_BYTES: usize = 8 * 1024;

/// A text that is not the URL of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Error)]
pub enum InvalidUrl {
    /// The URL has more than [`MAX_URL_BYTES`] bytes.
    #[error("the URL is longer than {MAX_URL_BYTES} bytes")]
    TooLong,
    /// The URL has a control character, such as NUL, a tab or a line break, or it starts or ends with a space.
    #[error("the URL has a control character, or a space at its start or end")]
    Control,
    /// The URL has a backslash. Some readers treat it as a slash and others do not.
    #[error("the URL has a backslash; write `/`, or `%5C` in a path or a query")]
    Backslash,
    /// The URL does not start with `http://` or `https://` and a host.
    #[error("the URL does not begin with `https://` or `http://` and a host")]
    Form,
    /// The URL has a user or a password, which often disguises the host.
    #[error("the URL has a user name or a password")]
    UserInfo,
    /// The URL's port is 0 or not a number up to 65535.
    #[error("the URL's port is not a number from 1 to 65535")]
    Port,
    /// The URL has no valid host.
    #[error("the URL's host is neither a name nor an address")]
    Host,
}

/// Parses the URL of a request. The result has a canonical host and no fragment, because a fragment is never sent.
pub(crate) fn parse_url(text: &str) -> Result<(Url, Authority), InvalidUrl> {
    check_characters(text)?;
    check_absolute(text)?;
    canonical(Url::parse(text))
}

/// Parses the URL of a request, in the way every request is parsed: the result has a canonical host and no
/// fragment.
///
/// # Errors
/// [`InvalidUrl`] for a text that no policy allows.
pub fn parse_request_url(text: &str) -> Result<Url, InvalidUrl> {
    parse_url(text).map(|(url, _)| url)
}

/// Returns the authority of a URL that [`parse_url`] has returned.
pub(crate) fn authority_of(url: &Url) -> Option<Authority> {
    parse_url(url.as_str()).ok().map(|(_, authority)| authority)
}

/// Parses the target of a redirect, which may be relative to the URL of the request (RFC 9110, section 10.2.2).
pub(super) fn parse_target(base: &Url, text: &str) -> Result<(Url, Authority), InvalidUrl> {
    check_characters(text)?;
    if has_scheme(text) {
        check_absolute(text)?;
    } else if let Some(rest) = text.strip_prefix("//") {
        check_authority(rest)?;
    }
    canonical(base.join(text))
}

fn check_characters(text: &str) -> Result<(), InvalidUrl> {
    if text.len() > MAX_URL_BYTES {
        return Err(InvalidUrl::TooLong);
    }
    // The parser would drop tabs and line breaks, and spaces at both ends.
    if text.chars().any(char::is_control) || text.trim() != text {
        return Err(InvalidUrl::Control);
    }
    if text.contains('\\') { Err(InvalidUrl::Backslash) } else { Ok(()) }
}

/// Returns whether a text starts with a scheme (RFC 3986, section 3.1).
fn has_scheme(text: &str) -> bool {
    let in_scheme = |character: char| character.is_ascii_alphanumeric() || "+-.".contains(character);
    let scheme = text.split_once(':').map_or("", |(scheme, _)| scheme);
    scheme.starts_with(|first: char| first.is_ascii_alphabetic()) && scheme.chars().all(in_scheme)
}

/// Checks the form of an absolute URL. The parser would also accept `https:host` and `https:////host`.
fn check_absolute(text: &str) -> Result<(), InvalidUrl> {
    let (scheme, rest) = text.split_once("://").ok_or(InvalidUrl::Form)?;
    if !Scheme::ALL.into_iter().any(|known_scheme| known_scheme.as_str().eq_ignore_ascii_case(scheme)) {
        return Err(InvalidUrl::Form);
    }
    check_authority(rest)
}

/// Checks the authority at the start of the text after `//`.
fn check_authority(rest: &str) -> Result<(), InvalidUrl> {
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    if authority.is_empty() {
        return Err(InvalidUrl::Form);
    }
    // This also refuses an empty user, as in `https://@host`, which the parser would drop.
    if authority.contains('@') { Err(InvalidUrl::UserInfo) } else { Ok(()) }
}

fn canonical(parsed: Result<Url, url::ParseError>) -> Result<(Url, Authority), InvalidUrl> {
    // The form has been checked, so every fault except an invalid port concerns the host.
    let fault =
        |error| if error == url::ParseError::InvalidPort { InvalidUrl::Port } else { InvalidUrl::Host };
    let mut url = parsed.map_err(fault)?;
    let scheme = url.scheme().parse::<Scheme>().ok().ok_or(InvalidUrl::Form)?;
    if !url.username().is_empty() || url.password().is_some() {
        return Err(InvalidUrl::UserInfo);
    }
    let host = url.host_str().and_then(|host| UrlHost::parse(host).ok()).ok_or(InvalidUrl::Host)?;
    let port = url.port().unwrap_or(scheme.default_port());
    if port == 0 {
        return Err(InvalidUrl::Port);
    }
    // Set the host in canonical form, without a trailing dot: rules, TLS and the header `Host` must name the same host.
    url.set_host(Some(&host.to_string())).ok().ok_or(InvalidUrl::Host)?;
    url.set_fragment(None);
    Ok((url, Authority::new(scheme, host, port)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, InvalidUrl>) {
        let parsed = parse_url(text).map(|(url, _)| url.to_string());
        assert_eq!(parsed.as_deref().map_err(|error| *error), expected, "{text:?}");
    }

    #[test]
    fn a_url_is_brought_into_one_form() {
        check("https://Example.com", Ok("https://example.com/"));
        check("HTTPS://example.com.:443/a/../b#c", Ok("https://example.com/b"));
        check("http://0x7f.0.0.1:80/", Ok("http://127.0.0.1/"));
        check(
            "https://b\u{fc}cher.example/\u{fc} x?\u{fc}",
            Ok("https://xn--bcher-kva.example/%C3%BC%20x?%C3%BC"),
        );
        check("https://example.com/a@b?c@d", Ok("https://example.com/a@b?c@d"));
    }

    #[test]
    fn an_ambiguous_url_is_refused() {
        for text in [
            "https://a\0",
            "https://a\tb",
            "https://a/\r\nHost: b",
            "https://a/\n",
            " https://a",
            "https://a\u{85}",
        ] {
            check(text, Err(InvalidUrl::Control));
        }
        for text in ["https:\\\\a", "https://a\\@b", "https://a/b\\c"] {
            check(text, Err(InvalidUrl::Backslash));
        }
        for text in [
            "",
            "a",
            "//a",
            "/a",
            "https:a",
            "https:/a",
            "https:///a",
            "https://",
            "https://?a",
            "ftp://a",
            "file:///a",
            "javascript:alert(1)",
            "data:,a",
            "ws://a",
            "blob:https://a/b",
        ] {
            check(text, Err(InvalidUrl::Form));
        }
        for text in
            ["https://u@a", "https://u:p@a", "https://@a", "https://:@a", "https://a@b@c", "https://a:80@b"]
        {
            check(text, Err(InvalidUrl::UserInfo));
        }
        for text in ["https://a:0", "https://a:65536", "https://a:b", "https://a:-1"] {
            check(text, Err(InvalidUrl::Port));
        }
        for text in [
            "https://a b",
            "https://*.a",
            "https://a..b",
            "https://[::1",
            "https://1.2.3.4.5",
            "https://a%00b",
        ] {
            check(text, Err(InvalidUrl::Host));
        }
        check(&format!("https://a/{}", "b".repeat(MAX_URL_BYTES)), Err(InvalidUrl::TooLong));
    }

    #[test]
    fn a_redirect_may_be_relative() {
        let (base, _) = parse_url("https://example.com/a/b?c").expect("a URL");
        for (text, expected) in [
            ("d", Ok("https://example.com/a/d")),
            ("/d", Ok("https://example.com/d")),
            ("//other.example/d", Ok("https://other.example/d")),
            ("?d:e", Ok("https://example.com/a/b?d:e")),
            ("", Ok("https://example.com/a/b?c")),
            ("http://other.example", Ok("http://other.example/")),
            ("//u@other.example", Err(InvalidUrl::UserInfo)),
            ("///other.example", Err(InvalidUrl::Form)),
            ("https:d", Err(InvalidUrl::Form)),
            ("javascript:alert(1)", Err(InvalidUrl::Form)),
            ("/\\other.example", Err(InvalidUrl::Backslash)),
            ("\t//other.example", Err(InvalidUrl::Control)),
        ] {
            let parsed = parse_target(&base, text).map(|(url, _)| url.to_string());
            assert_eq!(parsed.as_deref().map_err(|error| *error), expected, "{text}");
        }
    }
}
