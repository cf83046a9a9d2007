//! The operators that join or redirect commands.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::InvalidCommandRule;

/// An operator that joins or redirects commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Operator {
    /// `&&`
    And,
    /// `||`
    Or,
    /// `;`, or the end of a line between commands.
    Sequence,
    /// `&` after a command, and `coproc`.
    Background,
    /// `|`
    Pipe,
    /// `<`, `<<`, `<<<`: a program's input.
    Input,
    /// `>`, `>>`, `>|`, `&>`, `<>`: a file that may be written. `2>&1` does not count.
    Output,
    /// `$(…)`, or the same in backquotes.
    Substitution,
    /// `<(…)` and `>(…)`.
    Process,
    /// `(…)`
    Subshell,
}

/// All operators in a policy's notation, for messages.
pub(super) const OPERATORS: &str = "`&&`, `||`, `;`, `&`, `|`, `<`, `>`, `$()`, `<()`, `()`";

impl Operator {
    /// All operators.
    pub const ALL: [Self; 10] = [
        Self::And,
        Self::Or,
        Self::Sequence,
        Self::Background,
        Self::Pipe,
        Self::Input,
        Self::Output,
        Self::Substitution,
        Self::Process,
        Self::Subshell,
    ];

    /// Returns the operator in a policy's notation.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::And => "&&",
            Self::Or => "||",
            Self::Sequence => ";",
            Self::Background => "&",
            Self::Pipe => "|",
            Self::Input => "<",
            Self::Output => ">",
            Self::Substitution => "$()",
            Self::Process => "<()",
            Self::Subshell => "()",
        }
    }
}

impl FromStr for Operator {
    type Err = InvalidCommandRule;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let operator = Self::ALL.into_iter().find(|operator| operator.as_str() == text);
        operator.ok_or_else(|| InvalidCommandRule::Operator(text.to_owned()))
    }
}

impl fmt::Display for Operator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl Serialize for Operator {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl<'de> Deserialize<'de> for Operator {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}
