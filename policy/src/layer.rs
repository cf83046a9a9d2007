//! Two settings that other crates enforce: kernel layers that a call must have, and when an audit row is
//! synced to disk.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};

/// A kernel layer that `require` can make a condition of every WASM call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Layer {
    /// The file-system rights of the worker thread.
    Landlock,
    /// The system-call filter of the worker thread.
    Seccomp,
}

impl Layer {
    /// All layers.
    pub const ALL: [Self; 2] = [Self::Landlock, Self::Seccomp];

    /// The name used in policy files and by `doctor`.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Landlock => "landlock",
            Self::Seccomp => "seccomp",
        }
    }
}

impl fmt::Display for Layer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for Layer {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|layer| layer.as_str() == text)
            .ok_or_else(|| format!("unknown layer `{text}`: expected `landlock` or `seccomp`"))
    }
}

/// When an audit row is synced to disk. In both cases it is written before the call's result is released.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AuditSync {
    /// Every 100 ms and at exit.
    #[default]
    Interval,
    /// Before each answer.
    Always,
}

impl AuditSync {
    /// Both variants.
    pub const ALL: [Self; 2] = [Self::Interval, Self::Always];

    /// The name used in policy files.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Interval => "interval",
            Self::Always => "always",
        }
    }
}

impl fmt::Display for AuditSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl FromStr for AuditSync {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|sync| sync.as_str() == text)
            .ok_or_else(|| format!("unknown sync `{text}`: expected `interval` or `always`"))
    }
}
