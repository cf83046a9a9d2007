//! The limits of a policy: their types, defaults and bounds.

use std::{fmt, time::Duration};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// An amount of memory of a guest or a process, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct MemoryBytes(pub u64);

/// A length of a call's or a command's output, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct OutputBytes(pub u64);

/// A length of a file, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileBytes(pub u64);

impl fmt::Display for MemoryBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_in_largest_unit(self.0))
    }
}

impl fmt::Display for OutputBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_in_largest_unit(self.0))
    }
}

impl fmt::Display for FileBytes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&format_in_largest_unit(self.0))
    }
}

/// `[limits]`, with every default filled in. [`Limits::default`] is the source of truth for the defaults. The
/// shipped policy and the documents repeat them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Limits {
    /// The maximum number of calls that run concurrently.
    pub concurrency: usize,
    /// The maximum number of calls of one tool that an agent may make in a minute.
    pub calls_per_minute: u32,
    /// The maximum size of the text that one call returns to the model, for tools whose entry sets no other limit.
    pub max_output_bytes: OutputBytes,
    /// The limit on all memories of one call together, for tools whose entry sets no other limit. A policy may set it
    /// from 64 KiB, one page, to 4 GiB, all that a 32-bit guest can address.
    pub wasm_memory: MemoryBytes,
    /// The maximum duration of any call, whatever its tool declares or its entry sets.
    #[serde(rename = "max_timeout_ms", serialize_with = "as_millis")]
    pub max_timeout: Duration,
}

/// The maximum size of the text that one call returns to the model, if the policy sets no other: 16 KiB.
pub const DEFAULT_MAX_OUTPUT_BYTES: u64 = 16 << 10;

impl Default for Limits {
    fn default() -> Self {
        Self {
            concurrency: 10,
            calls_per_minute: 600,
            max_output_bytes: OutputBytes(DEFAULT_MAX_OUTPUT_BYTES),
            wasm_memory: MemoryBytes(64 * MIB),
            max_timeout: Duration::from_secs(10 * 60),
        }
    }
}

/// The smallest and the largest value that a policy may set. Zero is not allowed: it would disable a tool,
/// which is the purpose of `enabled = false`. The upper bounds keep a typo from disabling a limit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LimitBounds<T> {
    pub(crate) min: T,
    pub(crate) max: T,
}

pub(crate) const CONCURRENCY_BOUNDS: LimitBounds<u64> = LimitBounds { min: 1, max: 1024 };
pub(crate) const CALLS_PER_MINUTE_BOUNDS: LimitBounds<u64> = LimitBounds { min: 1, max: 1_000_000 };
pub(crate) const OUTPUT_BOUNDS: LimitBounds<u64> = LimitBounds { min: 1, max: 64 * MIB };
pub(crate) const MEMORY_BOUNDS: LimitBounds<u64> = LimitBounds { min: 64 * KIB, max: 4 * GIB };
pub(crate) const SHELL_MEMORY_BOUNDS: LimitBounds<u64> = LimitBounds { min: 16 * MIB, max: 1024 * GIB };
pub(crate) const SHELL_PROCESSES_BOUNDS: LimitBounds<u64> = LimitBounds { min: 8, max: 32_768 };
pub(crate) const SHELL_FILE_SIZE_BOUNDS: LimitBounds<u64> = LimitBounds { min: MIB, max: 1024 * GIB };
pub(crate) const SHELL_OUTPUT_BOUNDS: LimitBounds<u64> = LimitBounds { min: KIB, max: GIB };
pub(crate) const TIMEOUT_BOUNDS: LimitBounds<Duration> =
    LimitBounds { min: Duration::from_millis(1), max: Duration::from_secs(24 * 60 * 60) };

pub(crate) const KIB: u64 = 1024;
pub(crate) const MIB: u64 = 1024 * KIB;
pub(crate) const GIB: u64 = 1024 * MIB;

/// Formats the exact size, in the largest unit that divides it, as a policy file writes it.
pub(crate) fn format_in_largest_unit(bytes: u64) -> String {
    for (unit, factor) in [("GiB", GIB), ("MiB", MIB), ("KiB", KIB)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// Serializes a duration as whole milliseconds, the smallest unit of policy files.
pub(crate) fn as_millis<S: Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    // Cannot fail: no duration in a policy is longer than 24 h.
    serializer.serialize_u64(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Reads a duration that [`as_millis`] wrote.
pub(crate) fn from_millis<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    u64::deserialize(deserializer).map(Duration::from_millis)
}

/// Like [`as_millis`], for an optional duration.
pub(crate) fn as_optional_millis<S: Serializer>(
    duration: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    match duration {
        Some(duration) => as_millis(duration, serializer),
        None => serializer.serialize_none(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_shown_exactly() {
        for (bytes, expected) in [
            (1, "1B"),
            (1000, "1000B"),
            (1024, "1KiB"),
            (1025, "1025B"),
            (16 * KIB, "16KiB"),
            (64 * MIB, "64MiB"),
            (4 * GIB, "4GiB"),
        ] {
            assert_eq!(OutputBytes(bytes).to_string(), expected);
        }
    }
}
