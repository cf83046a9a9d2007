//! Approval: whether a call runs at once, is asked about, or is refused.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The approval that a tool's calls need. Ordered by strictness: the stricter of two is their maximum.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Approval {
    /// The call runs.
    Allow,
    /// The call runs if a person approves it.
    Ask,
    /// The call does not run.
    Deny,
}

impl Approval {
    /// All of them, from lax to strict.
    pub const ALL: [Self; 3] = [Self::Allow, Self::Ask, Self::Deny];

    /// The name used in policy files and audit rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Allow => "allow",
            Self::Ask => "ask",
            Self::Deny => "deny",
        }
    }
}

impl fmt::Display for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Approval {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|approval| approval.as_str() == text)
            .ok_or_else(|| format!("unknown approval `{text}`: expected `allow`, `ask` or `deny`"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stricter_of_two_approvals_is_their_maximum() {
        assert_eq!(Approval::Allow.max(Approval::Ask), Approval::Ask);
        assert_eq!(Approval::Deny.max(Approval::Ask), Approval::Deny);
        for approval in Approval::ALL {
            assert_eq!(approval.as_str().parse(), Ok(approval));
        }
    }
}
