//! The source of a secret: the location where the host finds the secret's value.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};
use thiserror::Error;

/// The source of a secret's value: `file:PATH`, `env:NAME` or `credential:NAME`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SecretSource {
    /// A file, as the operator wrote it: absolute, or relative to the policy file.
    File(String),
    /// A variable of the host's environment.
    Environment(String),
    /// A file in systemd's credentials folder, which `$CREDENTIALS_DIRECTORY` names (`systemd.exec(5)`).
    Credential(String),
}

/// A text that is not the source of a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidSecretSource {
    /// The text does not start with a known kind. The error does not repeat the text, which may be a misplaced secret.
    #[error(
        "a source begins with `file:`, `env:` or `credential:`; a policy never contains the value itself"
    )]
    Kind,
    /// The path of a file is empty, too long, or has a NUL character.
    #[error(
        "`file:` is followed by a path of 1 to {MAX_PATH_BYTES} bytes, absolute or relative to this file"
    )]
    Path,
    /// The text cannot be the name of a variable.
    #[error("`env:` is followed by the name of a variable: letters, digits and `_`, no digit first")]
    Variable,
    /// The text cannot be the name of a credential.
    #[error(
        "`credential:` is followed by the name of a file in `$CREDENTIALS_DIRECTORY`: letters, digits, `.`, `_` and `-`, no `.` first"
    )]
    Credential,
}

impl SecretSource {
    /// Returns the kind of the source: the word before the colon.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::File(_) => "file",
            Self::Environment(_) => "env",
            Self::Credential(_) => "credential",
        }
    }
}

impl FromStr for SecretSource {
    type Err = InvalidSecretSource;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let (kind, locator) = text.split_once(':').ok_or(InvalidSecretSource::Kind)?;
        let is_short = (1..=MAX_NAME_BYTES).contains(&locator.len());
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        match kind {
            "file" => {
                if (1..=MAX_PATH_BYTES).contains(&locator.len()) && !locator.contains('\0') {
                    Ok(Self::File(locator.to_owned()))
                } else {
                    Err(InvalidSecretSource::Path)
                }
            }
            "env" => {
                let is_name = is_short
                    && locator.bytes().all(is_word)
                    && !locator.starts_with(|first: char| first.is_ascii_digit());
                if is_name {
                    Ok(Self::Environment(locator.to_owned()))
                } else {
                    Err(InvalidSecretSource::Variable)
                }
            }
            "credential" => {
                let is_name = is_short
                    && locator.bytes().all(|byte| is_word(byte) || matches!(byte, b'.' | b'-'))
                    && !locator.starts_with('.');
                if is_name {
                    Ok(Self::Credential(locator.to_owned()))
                } else {
                    Err(InvalidSecretSource::Credential)
                }
            }
            _ => Err(InvalidSecretSource::Kind),
        }
    }
}

impl fmt::Display for SecretSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (Self::File(locator) | Self::Environment(locator) | Self::Credential(locator)) = self;
        write!(f, "{}:{locator}", self.kind())
    }
}

impl Serialize for SecretSource {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The maximum length of a path in bytes: Linux's `PATH_MAX`.
const MAX_PATH_BYTES: usize = 4096;

/// The maximum length of a name in bytes: Linux's `NAME_MAX` for a file. Names of variables in use are shorter.
const MAX_NAME_BYTES: usize = 255;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_source_is_a_file_a_variable_or_a_credential() {
        for text in [
            "file:/run/secrets/token",
            "file:secrets/a:b",
            "env:GITHUB_TOKEN",
            "env:_a1",
            "credential:github",
            "credential:github.token-1",
        ] {
            assert_eq!(text.parse::<SecretSource>().expect(text).to_string(), text);
        }
        use InvalidSecretSource::{Credential, Kind, Path, Variable};
        for (text, expected) in [
            ("", Kind),
            ("ghp_0123456789", Kind),
            ("vault:key", Kind),
            ("FILE:/x", Kind),
            ("file:", Path),
            ("file:a\0b", Path),
            ("env:", Variable),
            ("env:1A", Variable),
            ("env:A-B", Variable),
            ("env:A=B", Variable),
            ("credential:", Credential),
            ("credential:..", Credential),
            ("credential:a/b", Credential),
        ] {
            assert_eq!(text.parse::<SecretSource>(), Err(expected), "{text}");
        }
    }

    #[test]
    fn a_value_instead_of_a_source_is_not_repeated_in_the_error() {
        let error = "ghp_0123456789".parse::<SecretSource>().expect_err("no source").to_string();
        assert!(!error.contains("ghp_"), "{error}");
    }
}
