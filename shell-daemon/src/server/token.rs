//! The secret that a client must send with every call.

use std::fmt;

use subtle::ConstantTimeEq as _;

use super::SidecarServerError;

/// A token: 32 to 1024 printable ASCII characters without spaces. It is never shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Token(String);

impl Token {
    /// Checks a text and makes a token of it.
    ///
    /// # Errors
    /// [`SidecarServerError::Token`] if the text is shorter or longer, or has other characters.
    pub fn parse(text: &str) -> Result<Self, SidecarServerError> {
        let problem = if text.len() < MIN_TOKEN_BYTES {
            "is shorter than 32 characters"
        } else if text.len() > MAX_TOKEN_BYTES {
            "is longer than 1024 characters"
        } else if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            "has characters that are not printable ASCII"
        } else {
            return Ok(Self(text.to_owned()));
        };
        Err(SidecarServerError::Token { problem })
    }

    /// Whether a client's `authorization` header holds this token. The comparison takes constant time.
    pub(super) fn admits(&self, authorization: &[u8]) -> bool {
        authorization
            .strip_prefix(b"Bearer ")
            .is_some_and(|presented| presented.ct_eq(self.0.as_bytes()).into())
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

const MIN_TOKEN_BYTES: usize = 32;
const MAX_TOKEN_BYTES: usize = 1024;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_whole_token_is_admitted() {
        let text = "0123456789abcdef0123456789abcdef";
        let token = Token::parse(text).unwrap();
        assert!(token.admits(format!("Bearer {text}").as_bytes()));
        for other in [
            String::new(),
            "Bearer ".to_owned(),
            text.to_owned(),
            format!("bearer {text}"),
            format!("Bearer {}", &text[1..]),
            format!("Bearer {text}0"),
            format!("Bearer {text} "),
            format!("Bearer {}", text.to_uppercase()),
        ] {
            assert!(!token.admits(other.as_bytes()), "{other}");
        }
        assert_eq!(format!("{token:?}"), "Token");
    }

    #[test]
    fn weak_or_unsendable_token_is_refused() {
        for bad in ["", &"x".repeat(31), &"x".repeat(1025), &"x y".repeat(20), &"\u{e9}".repeat(40)] {
            assert!(matches!(Token::parse(bad), Err(SidecarServerError::Token { .. })), "{bad}");
        }
    }
}
