//! Tokens: the hashes of secrets that identify callers.

/// A token, without its secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// The id, unique in the store.
    pub id: String,
    /// The SHA-256 of the secret in 64 lowercase hexadecimal digits, unique in the store.
    pub hash: String,
    /// The kind of its subject, for example `user`.
    pub subject_kind: String,
    /// The id of its subject; `None` for a kind that has one subject.
    pub subject: Option<String>,
    /// When it was added.
    pub created: i64,
}
