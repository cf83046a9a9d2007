//! Parses a line as a link of the chain: `{"v":2,"seq":N,…,"prev":"<64 hex>","hash":"<64 hex>"}\n`. Rows of
//! version 1 begin with `{"seq":N`.
//!
//! The hash is the SHA-256 of the raw bytes before `,"hash":"`. It is the last field and has a fixed
//! width, so a verifier only slices bytes and never serializes a row: `head -c -76 | sha256sum`
//! checks a single line.

use sha2::{Digest as _, Sha256};

use super::text::push_number;

/// The maximum length of a row, with its newline: 64 KiB. The limits of all fields together stay below it.
/// Without this limit, a model could make readers of the log load a line of any length into memory.
pub const MAX_ROW_BYTES: usize = 64 * 1024;

/// A hash as the log writes it: 64 lower-case hexadecimal digits.
pub(super) type Hash = [u8; HASH_BYTES];

/// The `prev` of the first row.
pub(super) const GENESIS: Hash = [b'0'; HASH_BYTES];

/// Whether a text is a SHA-256 in hexadecimal. Check a text that names a file with this before making
/// it a part of a path.
#[must_use]
pub fn is_sha256(text: &str) -> bool {
    text.len() == HASH_BYTES && text.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// The fields of a line that link the chain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ChainLink {
    /// The row's number, from 1.
    pub(super) seq: u64,
    /// The hash of the previous row.
    pub(super) prev: Hash,
    /// The hash of this row, already compared with the row's bytes.
    pub(super) hash: Hash,
}

/// Why a line is not a valid link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LineFault {
    /// The line does not have the required form.
    Malformed,
    /// The hash in the line does not match its bytes.
    HashMismatch,
}

/// Completes a row that has been written up to `prev`: appends `prev` and `hash`, and returns the hash.
pub(super) fn append_hash(line: &mut Vec<u8>, prev: &Hash) -> Hash {
    line.extend_from_slice(PREV_KEY);
    line.extend_from_slice(prev);
    line.push(b'"');
    let hash = hash_of(line);
    line.extend_from_slice(HASH_KEY);
    line.extend_from_slice(&hash);
    line.extend_from_slice(END);
    hash
}

/// Parses a line with its newline, and verifies its hash.
pub(super) fn check(line: &[u8]) -> Result<ChainLink, LineFault> {
    let body = line.strip_suffix(END).ok_or(LineFault::Malformed)?;
    let (body, hash) = body.split_last_chunk::<HASH_BYTES>().ok_or(LineFault::Malformed)?;
    let body = body.strip_suffix(HASH_KEY).ok_or(LineFault::Malformed)?;
    let unquoted = body.strip_suffix(b"\"").ok_or(LineFault::Malformed)?;
    let (before_prev, prev) = unquoted.split_last_chunk::<HASH_BYTES>().ok_or(LineFault::Malformed)?;
    let row_head = before_prev.strip_suffix(PREV_KEY).ok_or(LineFault::Malformed)?;
    let seq = seq_of(row_head).ok_or(LineFault::Malformed)?;
    if line.len() > MAX_ROW_BYTES {
        return Err(LineFault::Malformed);
    }
    if hash_of(body) != *hash {
        return Err(LineFault::HashMismatch);
    }
    Ok(ChainLink { seq, prev: *prev, hash: *hash })
}

/// The length of the end of every line: the digits of its own hash, and the closing characters.
pub(super) const HASH_TAIL_BYTES: usize = HASH_BYTES + END.len();

/// Returns the hash at the end of a line, without comparing it with the content.
pub(super) fn hash_in(line: &[u8]) -> Option<&Hash> {
    line.strip_suffix(END)?.last_chunk()
}

/// Whether the last [`HASH_TAIL_BYTES`] of a line contain this hash.
pub(super) fn tail_has_hash(tail: &[u8], hash: &Hash) -> bool {
    tail.strip_suffix(END) == Some(hash.as_slice())
}

fn hash_of(body: &[u8]) -> Hash {
    // `GENESIS` only sets the length; its value is overwritten.
    let mut hash = GENESIS;
    hex::encode_to_slice(Sha256::digest(body), &mut hash).expect("a SHA-256 has 64 hexadecimal digits");
    hash
}

/// Starts a line with the version of its form and the row's number.
pub(super) fn push_head(line: &mut Vec<u8>, seq: u64) {
    line.extend_from_slice(VERSION_KEY);
    push_number(line, ROW_VERSION);
    line.push(b',');
    line.extend_from_slice(SEQ_KEY);
    push_number(line, seq);
}

fn seq_of(head: &[u8]) -> Option<u64> {
    let rest = match head.strip_prefix(VERSION_KEY) {
        // A later version may have other fields, but the same chain.
        Some(rest) => number_at_start(rest)?.1.strip_prefix(b",")?.strip_prefix(SEQ_KEY)?,
        None => head.strip_prefix(b"{")?.strip_prefix(SEQ_KEY)?,
    };
    Some(number_at_start(rest)?.0)
}

fn number_at_start(text: &[u8]) -> Option<(u64, &[u8])> {
    let digits = text.iter().take_while(|byte| byte.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(digits);
    Some((std::str::from_utf8(digits).ok()?.parse().ok()?, rest))
}

/// The version of the form of rows: 2. Rows without the field have version 1.
pub const ROW_VERSION: u64 = 2;

const VERSION_KEY: &[u8] = b"{\"v\":";
const SEQ_KEY: &[u8] = b"\"seq\":";
const PREV_KEY: &[u8] = b",\"prev\":\"";
const HASH_KEY: &[u8] = b",\"hash\":\"";
const END: &[u8] = b"\"}\n";
const HASH_BYTES: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    fn sealed(head: &str, prev: &Hash) -> (Vec<u8>, Hash) {
        let mut line = head.as_bytes().to_vec();
        let hash = append_hash(&mut line, prev);
        (line, hash)
    }

    #[test]
    fn a_sealed_line_checks_and_any_flipped_bit_does_not() {
        let (line, hash) = sealed(r#"{"seq":12,"time":"t""#, &GENESIS);
        assert_eq!(check(&line), Ok(ChainLink { seq: 12, prev: GENESIS, hash }));
        assert!(tail_has_hash(&line[line.len() - HASH_TAIL_BYTES..], &hash));
        assert!(line.ends_with(b"\"}\n"));
        for index in 0..line.len() {
            for bit in 0..8 {
                let mut flipped = line.clone();
                flipped[index] ^= 1 << bit;
                assert!(check(&flipped).is_err(), "byte {index}, bit {bit}");
            }
        }
    }

    #[test]
    fn the_hash_is_what_sha256sum_says() {
        let (line, _) = sealed(r#"{"seq":1"#, &GENESIS);
        let body = format!(r#"{{"seq":1,"prev":"{}""#, "0".repeat(64));
        let expected = hex::encode(Sha256::digest(body.as_bytes()));
        assert_eq!(String::from_utf8_lossy(&line), format!("{body},\"hash\":\"{expected}\"}}\n"));
    }

    #[test]
    fn malformed_line_is_a_form_fault() {
        for malformed in ["", "\n", "{}\n", "{\"seq\":1}\n", "\0\0\0\0"] {
            assert_eq!(check(malformed.as_bytes()), Err(LineFault::Malformed));
        }
        let (line, _) = sealed(r#"{"seq":x"#, &GENESIS);
        assert_eq!(check(&line), Err(LineFault::Malformed));
        let (line, _) = sealed(&format!(r#"{{"seq":1,"x":"{}""#, "y".repeat(MAX_ROW_BYTES)), &GENESIS);
        assert_eq!(check(&line), Err(LineFault::Malformed));
    }
}
