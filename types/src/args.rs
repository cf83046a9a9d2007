//! The arguments of one call: their exact JSON text, and the value decoded from it.

use std::sync::{Arc, OnceLock};

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A call's arguments: their JSON text and, on demand, the decoded value. The text is the source of truth,
/// because a [`Value`] cannot represent every JSON number: a `u128` survives only in the text.
///
/// The registry creates these after strict decoding, which refuses duplicate keys and excessive depth or
/// size. A tool only reads them.
#[derive(Debug, Clone)]
pub struct ToolArgs {
    text: Arc<str>,
    /// Decoded on first use, because a value takes many times the memory of its text, and most
    /// tools read the text.
    value: OnceLock<Value>,
}

impl ToolArgs {
    /// Pairs a text with its decoded value. The caller guarantees that the two match.
    #[must_use]
    pub fn from_decoded(text: impl Into<Arc<str>>, value: Value) -> Self {
        Self { text: text.into(), value: OnceLock::from(value) }
    }

    /// Wraps a text that is decoded later. The caller guarantees that the text is valid JSON
    /// and was validated.
    #[must_use]
    pub fn from_checked(text: impl Into<Arc<str>>) -> Self {
        Self { text: text.into(), value: OnceLock::new() }
    }

    /// Parses a text without the registry's strictness, for tests and for tools that build calls.
    ///
    /// # Errors
    /// If the text is not JSON.
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

    /// Decodes the arguments into a type. Decodes the text and not the value, so no number loses precision.
    ///
    /// # Errors
    /// If the text does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}

impl PartialEq for ToolArgs {
    fn eq(&self, other: &Self) -> bool {
        // Compare the texts first: calls with different texts need not be decoded.
        self.text == other.text && self.value() == other.value()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_value_does_not_depend_on_when_it_is_decoded() {
        let text = r#"{"b":[1,2.5,"x"],"a":null}"#;
        let (parsed, unparsed) = (ToolArgs::parse(text).expect("valid JSON"), ToolArgs::from_checked(text));
        assert_eq!(parsed, unparsed);
        assert_eq!(unparsed.value()["b"][1], 2.5);
        assert_eq!(unparsed.clone().text(), text);
        assert_ne!(unparsed, ToolArgs::from_checked("{}"));
    }

    #[test]
    fn decoding_keeps_numbers_that_a_value_cannot_hold() {
        let args = ToolArgs::parse("[340282366920938463463374607431768211455]").expect("valid JSON");
        assert_eq!(args.decode::<Vec<u128>>().expect("fits"), [u128::MAX]);
    }
}
