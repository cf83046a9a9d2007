//! The names of variables that a shell may take from the operator's environment.

use std::{borrow::Borrow, fmt, sync::Arc};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};
use thiserror::Error;

/// The name of a variable that a shell takes from outside: 1 to 256 characters of `A`–`Z`, `a`–`z`, `0`–`9`
/// and `_`, not starting with a digit. Variables that a session sets itself are excluded, and so are
/// variables that make a shell or the loader run other code.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct VariableName(Arc<str>);

/// A text that cannot name a variable from outside.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum InvalidVariable {
    /// The text is not a valid name.
    #[error("`{}` is not a variable name: letters, digits and `_` are allowed, no digit first", .0.escape_default())]
    Name(String),
    /// A session sets the variable itself.
    #[error("`{0}` is set by the session itself; leave it out")]
    SetBySession(String),
    /// The variable makes a program run code that its caller did not ask for.
    #[error("`{0}` changes what {1} runs; leave it out")]
    Dangerous(String, &'static str),
}

impl VariableName {
    /// Checks a name.
    ///
    /// # Errors
    /// [`InvalidVariable`] with the text.
    pub fn parse(text: &str) -> Result<Self, InvalidVariable> {
        let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        let starts_well = text.bytes().next().is_some_and(|byte| !byte.is_ascii_digit());
        if !starts_well || text.len() > MAX_NAME_BYTES || !text.bytes().all(is_allowed) {
            return Err(InvalidVariable::Name(text.chars().take(MAX_NAME_BYTES).collect()));
        }
        if SESSION_VARIABLES.contains(&text) || text.starts_with("PORTCULLIS_") {
            return Err(InvalidVariable::SetBySession(text.to_owned()));
        }
        if SHELL_VARIABLES.contains(&text) || text.starts_with("BASH") {
            return Err(InvalidVariable::Dangerous(text.to_owned(), "the shell"));
        }
        if LOADER_VARIABLES.contains(&text) || text.starts_with("LD_") || text.starts_with("DYLD_") {
            return Err(InvalidVariable::Dangerous(text.to_owned(), "every program"));
        }
        Ok(Self(text.into()))
    }

    /// Returns whether the name looks like that of a secret. This is a heuristic, used only for warnings.
    #[must_use]
    pub fn looks_secret(&self) -> bool {
        let name = self.0.to_ascii_uppercase();
        SECRET_WORDS.iter().any(|part| name.contains(part))
            || SECRET_SUFFIXES.iter().any(|end| name.ends_with(end))
    }

    /// Returns the name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for VariableName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

impl Borrow<str> for VariableName {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl Serialize for VariableName {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for VariableName {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::parse(&String::deserialize(deserializer)?).map_err(D::Error::custom)
    }
}

/// The maximum length of a name, in bytes. Names in use are shorter.
const MAX_NAME_BYTES: usize = 256;

/// Variables that a session, or bash in a session, sets.
const SESSION_VARIABLES: &[&str] =
    &["PATH", "HOME", "TMPDIR", "PWD", "OLDPWD", "SHLVL", "PPID", "UID", "EUID", "_"];

/// Variables that a shell reads before or while it runs a command: files to source, texts to run, word
/// separators.
const SHELL_VARIABLES: &[&str] = &[
    "ENV",
    "IFS",
    "CDPATH",
    "SHELLOPTS",
    "PROMPT_COMMAND",
    "PS0",
    "PS1",
    "PS2",
    "PS4",
    "GLOBIGNORE",
    "EXECIGNORE",
    "POSIXLY_CORRECT",
    "FPATH",
    "ZDOTDIR",
];

/// Variables that make the C library load code or settings.
const LOADER_VARIABLES: &[&str] = &["GLIBC_TUNABLES", "GCONV_PATH", "LOCPATH", "NLSPATH", "HOSTALIASES"];

/// Parts of the usual names of secrets, and of paths to secrets.
const SECRET_WORDS: &[&str] = &[
    "SECRET",
    "TOKEN",
    "PASSWORD",
    "PASSWD",
    "PASSPHRASE",
    "CREDENTIAL",
    "PRIVATE",
    "APIKEY",
    "ACCESS_KEY",
    "COOKIE",
    "BEARER",
    "DATABASE_URL",
    "CONNECTION_STRING",
    "SSH_AUTH_SOCK",
    "KUBECONFIG",
    "NETRC",
];

/// Endings of the usual names of secrets.
const SECRET_SUFFIXES: &[&str] = &["_KEY", "_PAT", "_PWD", "_PASS", "PGPASS", "_AUTH", "_DSN", "_SIGNATURE"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_has_a_plain_name() {
        for good in ["CI", "_x", "a1", "LANG", "TERM", "PATHS", "MY_PATH", "HTTP_PROXY", "LDX", "ENVIRONMENT"]
        {
            assert!(VariableName::parse(good).is_ok(), "{good}");
        }
        let long = "a".repeat(257);
        for invalid in ["", "1a", "a b", "a=b", "a-b", "\u{e4}", "a\0", "BASH_FUNC_x%%", &long] {
            assert!(matches!(VariableName::parse(invalid), Err(InvalidVariable::Name(_))), "{invalid}");
        }
    }

    #[test]
    fn names_that_look_like_secrets_are_recognized() {
        for name in
            ["AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "OPENAI_API_KEY", "PGPASSWORD", "db_password", "X_PAT"]
        {
            assert!(VariableName::parse(name).expect("a name").looks_secret(), "{name}");
        }
        for name in ["CI", "LANG", "TERM", "KEYBOARD", "EDITOR", "HTTP_PROXY", "PATIENCE"] {
            assert!(!VariableName::parse(name).expect("a name").looks_secret(), "{name}");
        }
    }

    #[test]
    fn variables_of_session_and_shell_are_refused_with_the_reason() {
        for (name, expected) in [
            ("PATH", "`PATH` is set by the session itself; leave it out"),
            ("HOME", "`HOME` is set by the session itself; leave it out"),
            ("PORTCULLIS_SHARED", "`PORTCULLIS_SHARED` is set by the session itself; leave it out"),
            ("BASH_ENV", "`BASH_ENV` changes what the shell runs; leave it out"),
            ("BASHOPTS", "`BASHOPTS` changes what the shell runs; leave it out"),
            ("ENV", "`ENV` changes what the shell runs; leave it out"),
            ("IFS", "`IFS` changes what the shell runs; leave it out"),
            ("LD_PRELOAD", "`LD_PRELOAD` changes what every program runs; leave it out"),
            ("LD_", "`LD_` changes what every program runs; leave it out"),
            ("GCONV_PATH", "`GCONV_PATH` changes what every program runs; leave it out"),
        ] {
            assert_eq!(VariableName::parse(name).expect_err(name).to_string(), expected);
        }
    }

    #[test]
    fn a_name_that_is_read_is_checked() {
        let name: VariableName = serde_json::from_str("\"CI\"").expect("a name");
        assert_eq!((name.as_str(), serde_json::to_string(&name).expect("json")), ("CI", "\"CI\"".to_owned()));
        assert!(serde_json::from_str::<VariableName>("\"LD_PRELOAD\"").is_err());
    }
}
