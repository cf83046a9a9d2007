//! [`ConversationId`]: names a conversation, its run and its file.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::ConversationError;

/// The beginning of every id.
const PREFIX: &str = "run_";

/// The random part of an id, in bytes. An id only has to differ from the others of its folder.
const RANDOM_BYTES: usize = 8;

/// The id of a conversation: `run_` and 16 hexadecimal digits. It is also the id of the conversation's run in the audit
/// log. As a file name it stays in its folder.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub(crate) struct ConversationId(String);

impl ConversationId {
    /// A new random id.
    ///
    /// # Errors
    /// [`ConversationError::Random`] if the system gives no random bytes.
    pub(crate) fn random() -> Result<Self, ConversationError> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(|source| ConversationError::Random { source })?;
        Ok(Self(format!("{PREFIX}{}", hex::encode(bytes))))
    }

    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for ConversationId {
    type Err = ConversationError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_valid = text
            .strip_prefix(PREFIX)
            .is_some_and(|digits| digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(is_digit));
        if is_valid {
            Ok(Self(text.to_owned()))
        } else {
            Err(ConversationError::InvalidId { text: text.to_owned() })
        }
    }
}

impl TryFrom<String> for ConversationId {
    type Error = ConversationError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ConversationId> for String {
    fn from(id: ConversationId) -> Self {
        id.0
    }
}

impl fmt::Display for ConversationId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_name() {
        let id = ConversationId::random().expect("random bytes");
        assert_eq!(id.as_str().parse::<ConversationId>().expect("an id"), id);
        assert_ne!(id, ConversationId::random().expect("random bytes"));
        for text in ["", "run_", "../run_0123456789abcdef", "run_0123456789ABCDEF", "run_0123456789abcde/"] {
            let error = text.parse::<ConversationId>().expect_err(text);
            assert!(error.to_string().contains("16 hexadecimal digits"), "{error}");
        }
    }
}
