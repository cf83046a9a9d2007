//! One hash over several texts.

use sha2::{Digest, Sha256};

/// The SHA-256 of texts, in hexadecimal. Each is hashed with its length, so that no two lists give the same
/// input.
pub(crate) fn of_parts<const N: usize>(parts: [&str; N]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex::encode(hasher.finalize())
}
