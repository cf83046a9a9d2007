//! [`RunId`]: the id of a run.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

use super::RunError;

/// The prefix of every id.
const PREFIX: &str = "run_";

/// The random part of an id, in bytes. An id only has to be unique in its store.
const RANDOM_BYTES: usize = 8;

/// The id of a run: `run_` and 16 hexadecimal digits, as in the audit log.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

impl RunId {
    /// Creates a random id.
    ///
    /// # Errors
    /// [`RunError::Random`] if the system provides no random bytes.
    pub fn random() -> Result<Self, RunError> {
        let mut bytes = [0; RANDOM_BYTES];
        getrandom::fill(&mut bytes).map_err(|source| RunError::Random { source })?;
        Ok(Self(format!("{PREFIX}{}", hex::encode(bytes))))
    }

    /// Derives the id from a hash. The same hash gives the same id.
    #[must_use]
    pub fn from_hash(hash: &[u8; 32]) -> Self {
        Self(format!("{PREFIX}{}", hex::encode(&hash[..RANDOM_BYTES])))
    }

    /// Returns the text of the id.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RunId {
    type Err = RunError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let is_digit = |byte: u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let is_valid = text
            .strip_prefix(PREFIX)
            .is_some_and(|digits| digits.len() == 2 * RANDOM_BYTES && digits.bytes().all(is_digit));
        if is_valid { Ok(Self(text.to_owned())) } else { Err(RunError::InvalidId { text: text.to_owned() }) }
    }
}

impl TryFrom<String> for RunId {
    type Error = RunError;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<RunId> for String {
    fn from(id: RunId) -> Self {
        id.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_a_plain_name() {
        let id = RunId::random().expect("random bytes");
        assert_eq!(id.as_str().parse::<RunId>().expect("an id"), id);
        assert_ne!(id, RunId::random().expect("random bytes"));
        for text in ["", "run_", "../run_0123456789abcdef", "run_0123456789ABCDEF", "run_0123456789abcde/"] {
            let error = text.parse::<RunId>().expect_err(text);
            assert!(error.to_string().contains("16 hexadecimal digits"), "{error}");
        }
    }
}
