//! The confinement of a shell, named the same in the policy, the daemon and audit rows.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// The confinement of a shell's session, ordered by strength.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ShellPosture {
    /// No confinement: the host's own shell, for local development, on explicit request.
    None,
    /// Limits, and the other layers that are available.
    Minimal,
    /// All layers that a stock unprivileged container allows: limits, no privileges, Landlock, seccomp.
    Contained,
    /// The same layers and namespaces, with a file tree that holds the policy's mounts and the system,
    /// read-only.
    Strong,
}

impl ShellPosture {
    /// All postures, the weakest first.
    pub const ALL: [Self; 4] = [Self::None, Self::Minimal, Self::Contained, Self::Strong];

    /// The name used in policy files, on the command line and in audit rows.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Minimal => "minimal",
            Self::Contained => "contained",
            Self::Strong => "strong",
        }
    }
}

impl fmt::Display for ShellPosture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for ShellPosture {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|posture| posture.as_str() == text).ok_or_else(|| {
            format!("unknown posture `{text}`: expected `none`, `minimal`, `contained` or `strong`")
        })
    }
}
