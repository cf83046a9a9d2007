//! Redacts a body that arrives in pieces. A secret may begin in one piece and end in another.
//!
//! The redactor holds back the end of the received text while it may be the beginning of a secret, in any of
//! its forms. It passes on all other bytes as soon as it has searched them. The concatenated pieces equal the
//! redaction of the whole body.

use zeroize::Zeroize as _;

use super::{REDACTED, SecretMatches, find_secrets, is_base64, merge_overlapping};
use crate::Credential;

/// A redactor of one body.
pub(crate) struct Redactor {
    /// The text that is held back. After a search it is not longer than the longest form of a secret: 8 KiB
    /// of hexadecimal digits, each of which may be escaped in up to 13 bytes.
    held_back: Vec<u8>,
    /// The length of the start of `held_back` that belongs to a match whose replacement was passed on. `None` if the last
    /// byte that was passed on belongs to no replacement.
    replaced: Option<usize>,
    /// The number of bytes that may still be searched.
    credit: usize,
}

impl Redactor {
    pub(crate) fn new() -> Self {
        Self { held_back: Vec::new(), replaced: None, credit: FIRST_CREDIT_BYTES }
    }

    /// Takes the next piece, and returns the text that no later piece can make part of a secret.
    /// `credentials` are the secrets known so far. A new secret is found in the held text and in later
    /// pieces.
    pub(crate) fn push(&mut self, piece: &[u8], credentials: &[Credential]) -> Vec<u8> {
        self.held_back.extend_from_slice(piece);
        // The credit bounds the work: after a long prefix of a secret, each single byte would otherwise start
        // a search of all held text.
        self.credit = self.credit.saturating_add(piece.len().saturating_mul(CREDIT_OF_A_BYTE));
        match self.credit.checked_sub(self.held_back.len()) {
            Some(credit) => self.credit = credit,
            None => return Vec::new(),
        }
        let SecretMatches { matches, mut undecided_from } = find_secrets(&self.held_back, credentials);
        let ends_with_digit = self.held_back.last().is_some_and(|last| is_base64(*last));
        if undecided_from == self.held_back.len() && ends_with_digit && !credentials.is_empty() {
            // The base64 digit may hold bits of a secret that begins with the next piece.
            undecided_from -= 1;
        }
        self.release(undecided_from, matches)
    }

    /// Returns the held text, redacted, after the body has ended.
    pub(crate) fn finish(mut self, credentials: &[Credential]) -> Vec<u8> {
        let SecretMatches { matches, .. } = find_secrets(&self.held_back, credentials);
        self.release(self.held_back.len(), matches)
    }

    /// Returns the length of the text that is held back, in bytes.
    #[cfg(test)]
    pub(super) fn held_bytes(&self) -> usize {
        self.held_back.len()
    }

    /// Returns the text before `undecided_from`. A match that begins before that index is replaced as a
    /// whole, and `replaced` records how far the match reaches into the rest.
    fn release(&mut self, undecided_from: usize, mut matches: Vec<std::ops::Range<usize>>) -> Vec<u8> {
        let mut is_begun = self.replaced.is_some();
        if let Some(end) = self.replaced.take() {
            matches.insert(0, 0..end);
            matches = merge_overlapping(matches);
        }
        let (mut clean, mut copied) = (Vec::with_capacity(undecided_from + REDACTED.len()), 0);
        for range in matches {
            if range.start >= undecided_from && !is_begun {
                break;
            }
            clean.extend_from_slice(&self.held_back[copied..range.start]);
            if !is_begun {
                clean.extend_from_slice(REDACTED);
            }
            is_begun = false;
            copied = range.end;
            self.replaced = copied.checked_sub(undecided_from);
        }
        if copied < undecided_from {
            clean.extend_from_slice(&self.held_back[copied..undecided_from]);
        }
        let rest = self.held_back.split_off(undecided_from);
        std::mem::replace(&mut self.held_back, rest).zeroize();
        clean
    }
}

/// Overwrites the held text, which may be part of a secret.
impl Drop for Redactor {
    fn drop(&mut self) {
        self.held_back.zeroize();
    }
}

/// The first credit, in bytes. It lets the lines of a feed pass immediately, however short the pieces are.
const FIRST_CREDIT_BYTES: usize = 64 << 10;

/// The credit that each received byte adds, in bytes. It keeps the work proportional to the body's length.
const CREDIT_OF_A_BYTE: usize = 8;
