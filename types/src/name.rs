//! The names of tools.

use std::{borrow::Borrow, fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The name of a tool: 1 to 64 characters of `A`–`Z`, `a`–`z`, `0`–`9`, `_` and `-`, which the APIs of all
/// models accept. Other alphabets are excluded so that no two names look alike. Names that differ only in
/// case are different, but no registry contains both.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct ToolName(String);

impl ToolName {
    /// Validates a name.
    ///
    /// # Errors
    /// [`InvalidToolName`] with the invalid text.
    pub fn parse(text: impl Into<String>) -> Result<Self, InvalidToolName> {
        let text = text.into();
        let is_allowed = |byte: u8| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if (1..=64).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(Self(text))
        } else {
            Err(InvalidToolName { name: text })
        }
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether the names differ at most in case.
    #[must_use]
    pub fn is_same_but_for_case(&self, other: &Self) -> bool {
        self.0.eq_ignore_ascii_case(&other.0)
    }
}

impl fmt::Display for ToolName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for ToolName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl FromStr for ToolName {
    type Err = InvalidToolName;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::parse(text)
    }
}

impl TryFrom<String> for ToolName {
    type Error = InvalidToolName;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Self::parse(text)
    }
}

impl From<ToolName> for String {
    fn from(name: ToolName) -> Self {
        name.0
    }
}

/// Why a text cannot be a tool name.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a tool name: 1 to 64 characters of A-Z, a-z, 0-9, `_` and `-` are allowed", name.escape_default())]
pub struct InvalidToolName {
    /// The invalid text.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_small_and_plain() {
        for valid in ["a", "file_read", "confirmAction", "X-1", &"a".repeat(64)] {
            assert!(ToolName::parse(valid).is_ok(), "{valid}");
        }
        for invalid in ["", "file read", "filе_read", "Ａ", "a/b", "a.b", &"a".repeat(65)] {
            assert!(ToolName::parse(invalid).is_err(), "{invalid}");
        }
    }

    #[test]
    fn names_in_another_case_are_other_names_that_are_recognized() {
        let name = |text: &str| ToolName::parse(text).expect("a name");
        assert_ne!(name("confirmAction"), name("confirmaction"));
        assert!(name("confirmAction").is_same_but_for_case(&name("ConfirmAction")));
        assert!(!name("confirmAction").is_same_but_for_case(&name("confirm_action")));
    }
}
