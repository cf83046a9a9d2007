//! One hash over several texts.

use sha2::{Digest, Sha256};

/// Computes the SHA-256 of several texts, in hexadecimal. Each text is hashed with its length, so that two
/// different lists never give the same input.
pub(crate) fn hash_parts<const N: usize>(parts: [&str; N]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        hasher.update((part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    hex::encode(hasher.finalize())
}
