//! Secrets that the host attaches to requests: a value that is never shown, and the header that carries it.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue};
use zeroize::Zeroizing;

use crate::{
    redact::{SecretPattern, patterns},
    request::FORBIDDEN_HEADERS,
};

/// The value of a secret: [`SecretValue::MIN_BYTES`] to [`SecretValue::MAX_BYTES`] bytes of printable ASCII, without
/// spaces around it. The bytes are overwritten on drop. `Debug` does not show them, and there is no `Display` and no
/// `Serialize`.
#[derive(Clone)]
pub struct SecretValue(Zeroizing<Vec<u8>>);

/// The reason why a text is not a valid secret. It does not repeat the text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidSecret {
    /// The secret is empty, or only a line break.
    #[error("it is empty")]
    Empty,
    /// The secret is too short to be searched for in responses without false matches.
    #[error(
        "it has fewer than {} bytes, too few to redact it from responses without false matches",
        SecretValue::MIN_BYTES
    )]
    TooShort,
    /// The secret is too long for a header.
    #[error("it has more than {} bytes", SecretValue::MAX_BYTES)]
    TooLong,
    /// The secret has a control character, such as a line break, or a byte outside ASCII.
    #[error(
        "it has a control character or a byte outside ASCII, which a header cannot carry; one line break at its end is allowed"
    )]
    Characters,
    /// The secret begins or ends with a space.
    #[error("it begins or ends with a space, which a header would lose")]
    Space,
}

impl SecretValue {
    /// The length of the shortest value: 8 bytes. A shorter value would also match ordinary text.
    pub const MIN_BYTES: usize = 8;

    /// The length of the longest value: 4 KiB, half of what common servers accept as one header.
    pub const MAX_BYTES: usize = 4096;

    /// Checks a value, and drops one line break at its end, which editors add. The bytes are overwritten when
    /// the value is dropped or refused.
    ///
    /// # Errors
    /// [`InvalidSecret`], without the text.
    pub fn new(bytes: Vec<u8>) -> Result<Self, InvalidSecret> {
        let mut bytes = Zeroizing::new(bytes);
        if bytes.last() == Some(&b'\n') {
            bytes.pop();
            if bytes.last() == Some(&b'\r') {
                bytes.pop();
            }
        }
        let is_space = |byte: Option<&u8>| byte == Some(&b' ');
        match bytes.len() {
            0 => Err(InvalidSecret::Empty),
            length if length > Self::MAX_BYTES => Err(InvalidSecret::TooLong),
            _ if !bytes.iter().all(|byte| matches!(byte, b' '..=b'~')) => Err(InvalidSecret::Characters),
            _ if is_space(bytes.first()) || is_space(bytes.last()) => Err(InvalidSecret::Space),
            length if length < Self::MIN_BYTES => Err(InvalidSecret::TooShort),
            _ => Ok(Self(bytes)),
        }
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretValue(..)")
    }
}

/// A secret with its header. [`crate::Judge::should_attach`] decides which requests carry it.
#[derive(Clone)]
pub struct Credential {
    name: Arc<str>,
    header: HeaderName,
    value: HeaderValue,
    patterns: Arc<[SecretPattern]>,
}

/// The reason why a header cannot carry a secret.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the header `{header}` cannot carry a secret")]
pub struct InvalidCredential {
    /// The header's name.
    pub header: String,
}

/// The texts around a secret in the value of a header. Both may be empty.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HeaderAffixes<'a> {
    /// The text before the secret, such as `Bearer `.
    pub prefix: &'a str,
    /// The text after the secret.
    pub suffix: &'a str,
}

impl Credential {
    /// Creates the credential that carries the secret `name` in a header, between these texts.
    ///
    /// # Errors
    /// [`InvalidCredential`] for a header that a request cannot set, or texts that a header cannot hold.
    pub fn new(
        name: impl Into<Arc<str>>,
        value: &SecretValue,
        header: &str,
        affixes: HeaderAffixes<'_>,
    ) -> Result<Self, InvalidCredential> {
        let HeaderAffixes { prefix, suffix } = affixes;
        let invalid = || InvalidCredential { header: header.to_owned() };
        let header = HeaderName::try_from(header).map_err(|_invalid| invalid())?;
        if FORBIDDEN_HEADERS.contains(&header) {
            return Err(invalid());
        }
        let mut header_bytes =
            Zeroizing::new(Vec::with_capacity(prefix.len() + value.0.len() + suffix.len()));
        for part in [prefix.as_bytes(), &value.0, suffix.as_bytes()] {
            header_bytes.extend_from_slice(part);
        }
        // The owner overwrites the bytes when the last request that shares them is dropped.
        let header_bytes = Bytes::from_owner(Overwritten(header_bytes));
        let mut header_value = HeaderValue::from_maybe_shared(header_bytes).map_err(|_invalid| invalid())?;
        header_value.set_sensitive(true);
        let patterns = patterns(&value.0, prefix).into();
        Ok(Self { name: name.into(), header, value: header_value, patterns })
    }

    /// Returns the secret's name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the header that carries the secret.
    #[must_use]
    pub fn header(&self) -> &HeaderName {
        &self.header
    }

    /// Returns whether another credential has the same value in the same header. The comparison is not
    /// constant-time, so it must not check a stranger's guess.
    #[must_use]
    pub fn has_value_of(&self, other: &Self) -> bool {
        self.header == other.header && self.value == other.value
    }

    /// Returns the value of the header. It is for a protocol that has no headers, such as SMTP. The client
    /// attaches it to HTTP requests itself.
    #[must_use]
    pub fn expose(&self) -> &HeaderValue {
        &self.value
    }

    pub(crate) fn value(&self) -> &HeaderValue {
        &self.value
    }

    pub(crate) fn patterns(&self) -> &[SecretPattern] {
        &self.patterns
    }
}

/// Omits the value.
impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("name", &self.name)
            .field("header", &self.header)
            .finish_non_exhaustive()
    }
}

struct Overwritten(Zeroizing<Vec<u8>>);

impl AsRef<[u8]> for Overwritten {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(text: &str) -> Result<SecretValue, InvalidSecret> {
        SecretValue::new(text.as_bytes().to_vec())
    }

    #[test]
    fn a_value_is_one_line_of_printable_ascii() {
        for (text, length) in [("12345678", 8), ("12345678\n", 8), ("12345678\r\n", 8), ("1234 5678", 9)] {
            assert_eq!(value(text).unwrap().0.len(), length, "{text:?}");
        }
        for (text, expected) in [
            ("", InvalidSecret::Empty),
            ("\n", InvalidSecret::Empty),
            ("1234567", InvalidSecret::TooShort),
            ("12345678\n\n", InvalidSecret::Characters),
            ("1234\r\nHost: evil.test", InvalidSecret::Characters),
            ("12345678\0", InvalidSecret::Characters),
            ("12345678\u{fc}", InvalidSecret::Characters),
            (" 12345678", InvalidSecret::Space),
            ("12345678 \n", InvalidSecret::Space),
        ] {
            assert_eq!(value(text).unwrap_err(), expected, "{text:?}");
        }
        assert_eq!(value(&"a".repeat(4097)).unwrap_err(), InvalidSecret::TooLong);
        assert!(value(&"a".repeat(4096)).is_ok());
    }

    #[test]
    fn a_credential_never_shows_its_value() {
        let value = value("hunter2hunter2").unwrap();
        let credential =
            Credential::new("test", &value, "authorization", HeaderAffixes { prefix: "Bearer ", suffix: "" })
                .unwrap();
        assert_eq!(credential.value().as_bytes(), b"Bearer hunter2hunter2");
        let debug_text = format!("{value:?} {credential:?} {:?}", credential.value());
        assert!(!debug_text.contains("hunter2"), "{debug_text}");
        assert!(credential.value().is_sensitive());
    }

    #[test]
    fn a_header_of_the_connection_carries_no_secret() {
        let value = value("hunter2hunter2").unwrap();
        for header in FORBIDDEN_HEADERS {
            assert!(
                Credential::new("test", &value, header.as_str(), HeaderAffixes::default()).is_err(),
                "{header}"
            );
        }
        for header in ["", "a b", "a:b"] {
            assert!(Credential::new("test", &value, header, HeaderAffixes::default()).is_err(), "{header}");
        }
        assert!(
            Credential::new("test", &value, "x-key", HeaderAffixes { prefix: "\r\n", suffix: "" }).is_err()
        );
    }
}
