//! The policy digest: a hash that changes whenever the meaning of the policy changes.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::effective::EffectivePolicy;

/// The SHA-256 of the canonical effective policy, in lowercase hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct PolicyDigest(String);

impl PolicyDigest {
    /// Hashes the JSON of the effective policy, which is canonical by construction: maps and sets are sorted, defaults
    /// are filled in, fields keep the order of their declaration, and there are no floating-point numbers.
    pub(crate) fn compute(policy: &EffectivePolicy) -> Self {
        Self(hex::encode(Sha256::digest(canonical_json(policy))))
    }

    /// Returns the digest as text: 64 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Returns the text that the digest hashes.
pub(crate) fn canonical_json(policy: &EffectivePolicy) -> Vec<u8> {
    serde_json::to_vec(policy).expect("a map with text keys always serializes")
}

impl fmt::Display for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
