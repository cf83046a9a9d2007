//! The policy digest: a hash that changes whenever the meaning of a policy does.

use std::fmt;

use serde::Serialize;
use sha2::{Digest, Sha256};

use crate::effective::EffectivePolicy;

/// The SHA-256 of the canonical effective policy, in lowercase hexadecimal.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize)]
#[serde(transparent)]
pub struct PolicyDigest(String);

impl PolicyDigest {
    /// Hashes the JSON of the effective policy. It is canonical by construction: sorted maps and sets, all
    /// defaults filled in, fields in the order of their declaration, no floating point.
    pub(crate) fn of(policy: &EffectivePolicy) -> Self {
        let text = serde_json::to_vec(policy).expect("a map with text keys always serialises");
        Self(hex::encode(Sha256::digest(text)))
    }

    /// The digest as text: 64 hexadecimal digits.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PolicyDigest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}
