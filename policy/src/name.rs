//! The names of mounts, profiles and secrets, which the operator chooses.

use std::{borrow::Borrow, fmt, str::FromStr, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// The maximum length of the name of a mount, a profile or a secret, in bytes.
const MAX_NAME_BYTES: usize = 64;

/// The name of a mount: 1 to 64 characters of `a`–`z`, `0`–`9`, `_` and `-`. It is the first component of the
/// guest paths below the mount. The small alphabet excludes look-alikes, `.` and `..`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct MountName(Arc<str>);

/// The name of a profile: 1 to 64 characters of `A`–`Z`, `a`–`z`, `0`–`9`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ProfileName(Arc<str>);

/// The name of a secret: 1 to 64 characters of `a`–`z`, `0`–`9`, `_` and `-`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SecretName(Arc<str>);

/// A text that is not a valid name of a mount, a profile or a secret.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("`{}` is not a valid {kind} name: 1 to 64 characters of {allowed} are allowed", name.escape_default())]
pub struct InvalidName {
    /// The refused text.
    pub name: String,
    /// The kind of name that was expected.
    pub kind: &'static str,
    /// The allowed characters.
    pub allowed: &'static str,
}

impl MountName {
    /// The mount for secrets. It is never writable, and never granted together with a writable mount.
    pub const VAULT: &'static str = "vault";

    /// The mount where relative paths start, unless a policy names another.
    pub const SHARED: &'static str = "shared";

    /// Returns the mount [`MountName::SHARED`].
    #[must_use]
    pub fn shared() -> Self {
        Self(Self::SHARED.into())
    }

    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidName`] with the text.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse_lowercase_name("mount", text).map(Self)
    }

    /// Returns whether this is the vault.
    #[must_use]
    pub fn is_vault(&self) -> bool {
        self.as_str() == Self::VAULT
    }
}

impl SecretName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidName`] with the text.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        parse_lowercase_name("secret", text).map(Self)
    }
}

/// Checks a name with the small alphabet of mounts and secrets.
fn parse_lowercase_name(kind: &'static str, text: &str) -> Result<Arc<str>, InvalidName> {
    let is_allowed = |byte: u8| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
    if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_allowed) {
        Ok(text.into())
    } else {
        Err(InvalidName { name: text.to_owned(), kind, allowed: "a-z, 0-9, `_` and `-`" })
    }
}

impl ProfileName {
    /// The profile without mounts. Every policy has it, even without defining it.
    pub const NOTHING: &'static str = "Nothing";

    /// The profile of a tool that runs commands, if the policy has a shell. Its mounts are those of
    /// `[shell]`. A policy cannot define or assign it.
    pub const SHELL: &'static str = "Shell";

    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidName`] with the text.
    pub fn parse(text: &str) -> Result<Self, InvalidName> {
        let is_allowed = |byte: u8| matches!(byte, b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-');
        if (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_allowed) {
            Ok(Self(text.into()))
        } else {
            let allowed = "A-Z, a-z, 0-9, `_` and `-`";
            Err(InvalidName { name: text.to_owned(), kind: "profile", allowed })
        }
    }

    /// Returns the profile [`ProfileName::NOTHING`].
    #[must_use]
    pub fn nothing() -> Self {
        Self(Self::NOTHING.into())
    }

    /// Returns the profile [`ProfileName::SHELL`].
    #[must_use]
    pub fn shell() -> Self {
        Self(Self::SHELL.into())
    }

    /// Returns whether this is the profile [`ProfileName::SHELL`].
    #[must_use]
    pub fn is_shell(&self) -> bool {
        self.as_str() == Self::SHELL
    }

    /// Returns the rule that grants a mount to this profile, as a path in the policy file.
    #[must_use]
    pub fn mount_rule(&self, mount: &str) -> String {
        if self.is_shell() {
            format!("shell.mounts.{mount}")
        } else {
            format!("profiles.{self}.mounts.{mount}")
        }
    }
}

macro_rules! is_text {
    ($($name:ident),*) => {$(
        impl $name {
            /// Returns the name as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.pad(&self.0)
            }
        }

        impl Borrow<str> for $name {
            fn borrow(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                Self::parse(text)
            }
        }

        impl Serialize for $name {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&self.0)
            }
        }

        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
            }
        }
    )*};
}

is_text!(MountName, ProfileName, SecretName);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_small_and_plain() {
        let long = "a".repeat(65);
        for good in ["a", "shared", "x-1_y"] {
            assert!(MountName::parse(good).is_ok(), "{good}");
        }
        for invalid in ["", ".", "..", "a/b", "Shared", "vа", "a\0", &long] {
            assert!(MountName::parse(invalid).is_err(), "{invalid}");
        }
        for good in ["Nothing", "FileReadOnly", "x-1_y"] {
            assert!(ProfileName::parse(good).is_ok(), "{good}");
        }
        for invalid in ["", "File.Read", "a b", "Vаult", &long] {
            assert!(ProfileName::parse(invalid).is_err(), "{invalid}");
        }
    }
}
