//! Redaction of a body that comes in pieces: a secret may stand across several.

use zeroize::Zeroize as _;

use super::{Found, find, is_base64, without};
use crate::Credential;

/// Takes secrets out of one body.
pub(crate) struct Redactor<'c> {
    credentials: &'c [Credential],
    /// The end of what came, held back since it may be the beginning of a secret. It is never longer than the longest
    /// form of one: 16 bytes for each of the secret's own, in the longest of its patterns.
    held: Vec<u8>,
    /// The length that `held` must reach before it is searched again.
    search_at: usize,
}

impl<'c> Redactor<'c> {
    pub(crate) fn new(credentials: &'c [Credential]) -> Self {
        Self { credentials, held: Vec::new(), search_at: 0 }
    }

    /// Takes the next piece, and returns what no later piece can make a part of a secret.
    pub(crate) fn push(&mut self, piece: Vec<u8>) -> Vec<u8> {
        if self.credentials.is_empty() {
            return piece;
        }
        self.held.extend_from_slice(&piece);
        if self.held.len() < self.search_at {
            return Vec::new();
        }
        let Found { mut places, mut open } = find(&self.held, self.credentials);
        // In base64 it may hold bits of a secret that begins with the next piece.
        if open == self.held.len() && self.held.last().is_some_and(|last| is_base64(*last)) {
            open -= 1;
        }
        // A place is replaced once, so that it must not be cut.
        while let Some(last) = places.last().filter(|last| last.end > open) {
            open = open.min(last.start);
            places.pop();
        }
        let clean = without(&self.held[..open], &places);
        let mut rest = self.held.split_off(open);
        std::mem::swap(&mut self.held, &mut rest);
        rest.zeroize();
        // A server could send a long beginning and then byte by byte, and have it searched with each.
        self.search_at = self.held.len() + self.held.len() / 8;
        clean
    }

    /// What is still held back, once the body has ended.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        let mut rest = std::mem::take(&mut self.held);
        super::redact(&mut rest, self.credentials);
        rest
    }
}

/// What is held back may be a part of a secret.
impl Drop for Redactor<'_> {
    fn drop(&mut self) {
        self.held.zeroize();
    }
}
