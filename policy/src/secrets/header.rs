//! The header that carries a secret: its name, and the text around the value.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use thiserror::Error;

/// A header with a placeholder for the value, such as `Authorization: Bearer {secret}`, or `X-Api-Key` for
/// only the value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretHeader {
    /// The name in lower case, because header names are case-insensitive (RFC 9110, section 5.1).
    name: String,
    value_prefix: String,
    value_suffix: String,
}

/// A text that is not a header for a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidSecretHeader {
    /// The text is too long.
    #[error(
        "a header has at most {MAX_HEADER_BYTES} bytes; write for example `Authorization: Bearer {{secret}}`"
    )]
    TooLong,
    /// The text has no valid header name.
    #[error("`{}` is not a valid header name; write for example `Authorization: Bearer {{secret}}`, or only `X-Api-Key`", .0.escape_default())]
    Name(String),
    /// The connection, the framing or the client itself sets the header.
    #[error("the header `{0}` cannot carry a secret: {1}")]
    Forbidden(String, &'static str),
    /// The text has no placeholder for the value, or several.
    #[error(
        "the part after the name and its colon must contain `{{secret}}` exactly once; write for example `Authorization: Bearer {{secret}}`"
    )]
    Place,
    /// The text around the value has characters other than printable ASCII.
    #[error("the text around `{{secret}}` must be printable ASCII")]
    Characters,
}

impl SecretHeader {
    /// Returns the name, in lower case.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the text before the value.
    #[must_use]
    pub fn value_prefix(&self) -> &str {
        &self.value_prefix
    }

    /// Returns the text after the value.
    #[must_use]
    pub fn value_suffix(&self) -> &str {
        &self.value_suffix
    }
}

impl FromStr for SecretHeader {
    type Err = InvalidSecretHeader;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text.len() > MAX_HEADER_BYTES {
            return Err(InvalidSecretHeader::TooLong);
        }
        let (name, value) = match text.split_once(':') {
            Some((name, value)) => (name, value.trim_matches(' ')),
            // If the text is only a name, the value is the whole content of the header.
            None => (text, PLACE),
        };
        if name.is_empty() || !name.bytes().all(is_token) {
            return Err(InvalidSecretHeader::Name(name.to_owned()));
        }
        let name = name.to_ascii_lowercase();
        if let Some((_, reason)) = FORBIDDEN.iter().find(|(names, _)| names.contains(&name.as_str())) {
            return Err(InvalidSecretHeader::Forbidden(name, reason));
        }
        let (prefix, suffix) = value.split_once(PLACE).ok_or(InvalidSecretHeader::Place)?;
        if suffix.contains(PLACE) {
            return Err(InvalidSecretHeader::Place);
        }
        if !value.bytes().all(|byte| matches!(byte, b' '..=b'~')) {
            return Err(InvalidSecretHeader::Characters);
        }
        Ok(Self { name, value_prefix: prefix.to_owned(), value_suffix: suffix.to_owned() })
    }
}

/// Returns whether a byte may occur in a header's name (RFC 9110, section 5.6.2).
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

impl fmt::Display for SecretHeader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value_prefix: prefix, value_suffix: suffix } = self;
        write!(f, "{name}: {prefix}{PLACE}{suffix}")
    }
}

impl Serialize for SecretHeader {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The placeholder of the value.
const PLACE: &str = "{secret}";

/// The maximum length of the text of a header, in bytes.
const MAX_HEADER_BYTES: usize = 512;

/// Headers that cannot carry a secret, each group with the reason.
const FORBIDDEN: &[(&[&str], &str)] = &[
    (
        &[
            "connection",
            "content-length",
            "expect",
            "host",
            "keep-alive",
            "proxy-authenticate",
            "proxy-authorization",
            "proxy-connection",
            "te",
            "trailer",
            "transfer-encoding",
            "upgrade",
        ],
        "it belongs to the connection or to the framing of the message",
    ),
    (
        &[
            "accept",
            "accept-encoding",
            "accept-language",
            "cache-control",
            "content-encoding",
            "content-language",
            "content-type",
            "range",
            "user-agent",
        ],
        "the client or a tool says with it what it asks for",
    ),
    // A server may answer a session's cookie with a new one, which redaction would not recognize.
    (
        &["cookie", "set-cookie"],
        "a server answers a cookie with new ones, which would reach the tool; use a token",
    ),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Result<&str, &str>) {
        let parsed = text.parse::<SecretHeader>();
        match (parsed, expected) {
            (Ok(header), Ok(expected)) => {
                assert_eq!(header.to_string(), expected, "{text}");
                assert_eq!(expected.parse::<SecretHeader>(), Ok(header), "{text}");
            }
            (Err(error), Err(part)) => assert!(error.to_string().contains(part), "{text}: {error}"),
            (parsed, _) => panic!("{text}: {parsed:?}"),
        }
    }

    #[test]
    fn a_header_has_a_name_and_one_place_for_the_value() {
        check("Authorization: Bearer {secret}", Ok("authorization: Bearer {secret}"));
        check("Authorization:token {secret}", Ok("authorization: token {secret}"));
        check("X-Api-Key", Ok("x-api-key: {secret}"));
        check("X-Api-Key: {secret}", Ok("x-api-key: {secret}"));
        check(
            "Authorization: ApiKey key=\"{secret}\", v=1",
            Ok("authorization: ApiKey key=\"{secret}\", v=1"),
        );
        check("Authorization: Bearer", Err("must contain `{secret}` exactly once"));
        check("Authorization:", Err("must contain `{secret}` exactly once"));
        check("Authorization: {secret} {secret}", Err("must contain `{secret}` exactly once"));
        check("Authorization: {Secret}", Err("must contain `{secret}` exactly once"));
        check("", Err("is not a valid header name"));
        check(": {secret}", Err("is not a valid header name"));
        check("X Api", Err("is not a valid header name"));
        check("Authorization : {secret}", Err("is not a valid header name"));
        check("X-\u{fc}: {secret}", Err("is not a valid header name"));
        check("X-A: {secret}\r\nHost: evil.test", Err("printable ASCII"));
        check("X-A: \u{fc}{secret}", Err("printable ASCII"));
        check(&format!("X-A: {}{{secret}}", "a".repeat(512)), Err("at most 512 bytes"));
    }

    #[test]
    fn headers_that_are_not_the_tools_to_set_carry_none() {
        for name in [
            "Host",
            "CONTENT-LENGTH",
            "Transfer-Encoding",
            "Connection",
            "Cookie",
            "Set-Cookie",
            "Accept",
            "TE",
        ] {
            check(&format!("{name}: {{secret}}"), Err("cannot carry a secret"));
            check(name, Err("cannot carry a secret"));
        }
    }
}
