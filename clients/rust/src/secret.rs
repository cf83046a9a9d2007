//! The token, and texts of the gateway without it.

use std::fmt;

use http::HeaderValue;

use crate::ClientError;

/// The maximum number of characters of a text of the gateway that an error keeps.
const MAX_FOREIGN_CHARS: usize = 300;

/// The text that an error has in place of the token.
const REDACTED: &str = "[token]";

/// A token. Its `Debug` shows nothing of it.
pub(crate) struct Token(String);

impl Token {
    /// # Errors
    /// [`ClientError::Token`].
    pub(crate) fn new(text: &str) -> Result<Self, ClientError> {
        let is_token = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_graphic());
        if is_token { Ok(Self(text.to_owned())) } else { Err(ClientError::Token) }
    }

    /// The value of the header `Authorization`. It is marked as sensitive, so its `Debug` shows nothing of it either.
    ///
    /// # Errors
    /// [`ClientError::Token`].
    pub(crate) fn authorization(&self) -> Result<HeaderValue, ClientError> {
        let value = HeaderValue::try_from(format!("Bearer {}", self.0));
        // The source is dropped: it says no more than that a character is wrong.
        let mut value = value.map_err(|_invalid| ClientError::Token)?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// A text of the gateway for an error: without the token, which a server in the gateway's place could repeat; in
    /// one line; and cut.
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
                // Control characters, line ends and characters that change the direction of text become escapes.
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
