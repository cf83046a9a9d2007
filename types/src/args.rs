//! The arguments of one call: their exact text and its value.

use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A call's arguments. The text is kept beside the value because a value cannot hold every number of JSON: a
/// `u128` survives only in the text.
///
/// The registry makes these after its strict decoding (duplicate keys, depth and size refused); a tool only
/// reads them.
#[derive(Debug, Clone)]
pub struct ToolArgs {
    text: Arc<str>,
    /// Decoded on first use: a value is many times the size of its text, and most tools read the text.
    value: OnceLock<Value>,
}

impl ToolArgs {
    /// Pairs a text with its decoded value. The caller guarantees that they match.
    #[must_use]
    pub fn from_decoded(text: impl Into<Arc<str>>, value: Value) -> Self {
        Self { text: text.into(), value: OnceLock::from(value) }
    }

    /// Takes a text that is not decoded yet. The caller guarantees that it is valid JSON and was checked.
    #[must_use]
    pub fn from_checked(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), value: OnceLock::new() }
    }

    /// Parses a text without the registry's strictness, for tests and for tools that build calls.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self::from_decoded(text, serde_json::from_str(text)?))
    }

    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The decoded value.
    ///
    /// # Panics
    /// If [`ToolArgs::from_checked`] was given invalid JSON.
    #[must_use]
    pub fn value(&self) -> &Value {
        self.value.get_or_init(|| serde_json::from_str(&self.text).expect("the caller vouched for the text"))
    }

    /// Decodes the text into a type: the text, not the value, so that no number loses digits.
    ///
    /// # Errors
    /// When the text does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}

impl PartialEq for ToolArgs {
    fn eq(&self, other: &Self) -> bool {
        // The text first: only equal texts are decoded.
        self.text == other.text && self.value() == other.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_is_the_same_whenever_it_is_made() {
        let text = r#"{"b":[1,2.5,"x"],"a":null}"#;
        let (early, late) = (ToolArgs::parse(text).expect("valid JSON"), ToolArgs::from_checked(text));
        assert_eq!(early, late);
        assert_eq!(late.value()["b"][1], 2.5);
        assert_eq!(late.clone().text(), text);
        assert_ne!(late, ToolArgs::from_checked("{}"));
    }

    #[test]
    fn decoding_keeps_numbers_that_a_value_cannot_hold() {
        let args = ToolArgs::parse("[340282366920938463463374607431768211455]").expect("valid JSON");
        assert_eq!(args.decode::<Vec<u128>>().expect("fits"), [u128::MAX]);
    }
}
