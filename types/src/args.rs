//! The arguments of one call: their exact text and the value it stands for.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde_json::Value;

/// A call's arguments. The text is kept beside the value because a value cannot hold every number that
/// JSON can write: `u128` survives in the text alone.
///
/// The registry makes these after its strict decoding (duplicate keys, depth and size refused); a tool
/// only reads them.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolArgs {
    text: Arc<str>,
    value: Value,
}

impl ToolArgs {
    /// Pairs a text with the value that it was decoded to. The caller vouches that they belong together.
    #[must_use]
    pub fn from_decoded(text: impl Into<Arc<str>>, value: Value) -> Self {
        Self { text: text.into(), value }
    }

    /// Parses a text without the registry's strictness; meant for tests and for tools that build calls.
    ///
    /// # Errors
    /// When the text is not JSON.
    pub fn parse(text: &str) -> Result<Self, serde_json::Error> {
        Ok(Self { text: text.into(), value: serde_json::from_str(text)? })
    }

    /// The JSON text.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The decoded value.
    #[must_use]
    pub fn value(&self) -> &Value {
        &self.value
    }

    /// Decodes the text into a type; from the text, so that no number loses digits.
    ///
    /// # Errors
    /// When the text does not fit the type.
    pub fn decode<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decoding_keeps_numbers_that_a_value_cannot_hold() {
        let args = ToolArgs::parse("[340282366920938463463374607431768211455]").expect("valid JSON");
        assert_eq!(args.decode::<Vec<u128>>().expect("fits"), [u128::MAX]);
    }
}
