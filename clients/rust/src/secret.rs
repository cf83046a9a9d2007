//! `Token`: the token. Also removes it from the gateway's texts.

use std::fmt;

use http::HeaderValue;

use crate::ClientError;

/// The maximum length of a text of the gateway in an error, in characters.
const MAX_FOREIGN_CHARS: usize = 300;

/// Replaces the token in errors.
const REDACTED: &str = "[token]";

/// A token. Its `Debug` output does not show it.
pub(crate) struct Token(String);

impl Token {
    /// # Errors
    /// [`ClientError::Token`] if the text is empty, or has characters other than visible ASCII.
    pub(crate) fn new(text: &str) -> Result<Self, ClientError> {
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token { Ok(Self(text.to_owned())) } else { Err(ClientError::Token) }
    }

    /// Returns the value of the header `Authorization`. It is marked as sensitive, so its `Debug` output does
    /// not show the token either.
    ///
    /// # Errors
    /// [`ClientError::Token`] if the token cannot be part of a header.
    pub(crate) fn authorization(&self) -> Result<HeaderValue, ClientError> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.0));
        // Drop the source: it only says that a character is wrong.
        let mut value = value.map_err(|_invalid| ClientError::Token)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Cleans a text of the gateway for an error: one line, truncated, without the token. A server that poses
    /// as the gateway could otherwise echo the token.
    pub(crate) fn clean(&self, text: &str) -> String {
        let text = text.replace(&self.0, REDACTED);
        let mut cleaned = String::new();
        for (count, character) in text.chars().enumerate() {
            if count == MAX_FOREIGN_CHARS {
                cleaned.push('…');
                break;
            }
            match character {
                '"' | '\'' | '\\' => cleaned.push(character),
                // Escape control characters, line ends and characters that change the direction of text.
                _ => cleaned.extend(character.escape_debug()),
            }
        }
        cleaned
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(REDACTED)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_is_shown_nowhere() {
        let token = Token::new("pct_secret").expect("a token");
        assert!(!format!("{token:?}").contains("secret"));
        assert!(!format!("{:?}", token.authorization().expect("a header")).contains("secret"));
        assert_eq!(token.clean("Bearer pct_secret is unknown"), "Bearer [token] is unknown");
    }

    #[test]
    fn a_text_of_the_gateway_is_one_bounded_line() {
        let token = Token::new("pct_secret").expect("a token");
        assert_eq!(token.clean("it's \"é\"\r\n\u{1b}[1m\u{202e}"), "it's \"é\"\\r\\n\\u{1b}[1m\\u{202e}");
        assert_eq!(token.clean(&"x".repeat(301)).chars().count(), 301, "the cut is marked");
    }

    #[test]
    fn a_token_with_a_line_end_is_refused() {
        for text in ["", "a b", "pct_secret\n", "pct_\u{e9}", "a\0"] {
            let error = Token::new(text).expect_err("refused");
            assert!(matches!(error, ClientError::Token), "{text:?}: {error:?}");
        }
    }
}
