//! [`Json`]: a text that is JSON.

use serde::{Serialize, de::IgnoredAny};

use crate::error::StoreError;

/// A text that is JSON, kept byte for byte, so that numbers and the order of keys survive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Json(String);

impl Json {
    /// Checks a text.
    ///
    /// # Errors
    /// [`StoreError::Json`] if the text is not JSON.
    pub fn from_text(text: impl Into<String>) -> Result<Self, StoreError> {
        let text = text.into();
        // `IgnoredAny` checks the syntax without building a tree of a large payload.
        match serde_json::from_str::<IgnoredAny>(&text) {
            Ok(_) => Ok(Self(text)),
            Err(source) => Err(StoreError::Json { source }),
        }
    }

    /// Serializes a value.
    ///
    /// # Errors
    /// [`StoreError::Json`], for example for a map whose keys are not strings.
    pub fn of(value: &(impl Serialize + ?Sized)) -> Result<Self, StoreError> {
        serde_json::to_string(value).map(Self).map_err(|source| StoreError::Json { source })
    }

    /// Wraps a text from the database, which was checked when it was written.
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }

    /// Returns the text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Returns the text, without a copy.
    #[must_use]
    pub fn into_text(self) -> String {
        self.0
    }

    /// The size of the text in bytes.
    pub(crate) fn len(&self) -> usize {
        self.0.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_is_kept_and_checked() {
        let text = r#"{ "b": 1e400, "a": "\u0000" }"#;
        assert_eq!(Json::from_text(text).expect("JSON").as_str(), text);
        for text in ["", "{", "1 2", "\"\0\"", "nul"] {
            assert!(matches!(Json::from_text(text), Err(StoreError::Json { .. })), "{text:?}");
        }
    }
}
