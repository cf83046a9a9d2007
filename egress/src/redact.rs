//! Finds secrets in responses, and replaces them before any other code sees the bytes.
//!
//! A server repeats a secret when it echoes its request, or reports an error with the refused header. The
//! search finds the raw value and its forms in base64 (all three alignments, both alphabets), hexadecimal and
//! UTF-16. In each form, bytes may be escaped as in URLs, JSON, HTML or a string literal. This protects only
//! against careless servers: a malicious server can return the secret in another form.

use std::ops::Range;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use http::{HeaderMap, HeaderValue};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{Credential, SecretValue};

/// The replacement of a secret. It has no special meaning in a URL, a header, JSON, HTML or Markdown. It is not longer
/// than the shortest secret, so redaction never enlarges a body.
pub(crate) const REDACTED: &[u8] = b"REDACTED";

const _: () = assert!(REDACTED.len() <= SecretValue::MIN_BYTES);

/// One searched form of a secret.
pub(crate) struct SecretPattern {
    bytes: Zeroizing<Vec<u8>>,
    /// Whether line breaks may occur between the bytes, as in base64 by MIME (RFC 2045, section 6.8).
    is_wrapped: bool,
    /// Whether the base64 digit before the form, and the digit after it, hold bits of both the secret and its
    /// neighbour.
    edges: (bool, bool),
}

/// Returns the forms of a value that follows `prefix`. After `Basic`, the value is an encoded pair of user
/// name and password, so the forms of the decoded pair and of the password are included.
pub(crate) fn patterns(value: &[u8], prefix: &str) -> Vec<SecretPattern> {
    let mut all_patterns = Vec::new();
    add_patterns(&mut all_patterns, value);
    if prefix.trim_ascii().eq_ignore_ascii_case("basic")
        && let Ok(pair) = STANDARD.decode(value).map(Zeroizing::new)
        && let Some(colon) = pair.iter().position(|byte| *byte == b':')
    {
        for part in [&pair[..], &pair[colon + 1..]] {
            if part.len() >= SecretValue::MIN_BYTES {
                add_patterns(&mut all_patterns, part);
            }
        }
    }
    all_patterns
}

fn add_patterns(all_patterns: &mut Vec<SecretPattern>, value: &[u8]) {
    let plain_pattern =
        |bytes| SecretPattern { bytes: Zeroizing::new(bytes), is_wrapped: false, edges: (false, false) };
    let in_hexadecimal = |digits: &[u8; 16]| {
        let digit = |byte: u8| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]];
        value.iter().copied().flat_map(digit).collect()
    };
    let mut utf16: Vec<u8> = value.iter().flat_map(|byte| [*byte, 0]).collect();
    utf16.pop();
    all_patterns.extend(
        [value.to_vec(), in_hexadecimal(b"0123456789abcdef"), in_hexadecimal(b"0123456789ABCDEF"), utf16]
            .map(plain_pattern),
    );
    for engine in [STANDARD, URL_SAFE] {
        all_patterns.extend((0..3).map(|offset| base64_pattern(value, offset, &engine)));
    }
}

/// Returns the base64 digits that the value alone determines, if it begins `offset` bytes into a three-byte group.
fn base64_pattern(value: &[u8], offset: usize, engine: &base64::engine::GeneralPurpose) -> SecretPattern {
    let mut padded = Zeroizing::new(vec![0; offset]);
    padded.extend_from_slice(value);
    let mut text = Zeroizing::new(engine.encode(&padded).into_bytes());
    let skipped_digits = (8 * offset).div_ceil(6);
    let bits = 8 * (offset + value.len());
    text.truncate(bits / 6);
    let bytes = Zeroizing::new(text[skipped_digits..].to_vec());
    SecretPattern { bytes, is_wrapped: true, edges: (offset != 0, !bits.is_multiple_of(6)) }
}

/// Replaces all secrets in a text. Returns whether there were any.
pub(crate) fn redact(text: &mut Vec<u8>, credentials: &[Credential]) -> bool {
    let matches = find_secrets(text, credentials).matches;
    if matches.is_empty() {
        return false;
    }
    let mut clean = Vec::with_capacity(text.len());
    let mut copied = 0;
    for range in matches {
        clean.extend_from_slice(&text[copied..range.start]);
        clean.extend_from_slice(REDACTED);
        copied = range.end;
    }
    clean.extend_from_slice(&text[copied..]);
    text.zeroize();
    *text = clean;
    true
}

/// Replaces all secrets in a text that the host composes, such as an error that quotes a server.
#[must_use]
pub fn redact_text(text: String, credentials: &[Credential]) -> String {
    let mut bytes = text.into_bytes();
    redact(&mut bytes, credentials);
    // Patterns are ASCII, so the replacement never splits another character.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Replaces all secrets in headers. Drops a header whose name repeats a secret. Returns whether there were any.
pub(crate) fn redact_headers(headers: &mut HeaderMap, credentials: &[Credential]) -> bool {
    if credentials.is_empty() {
        return false;
    }
    let mut clean = HeaderMap::with_capacity(headers.len());
    let mut is_redacted = false;
    for (name, value) in &*headers {
        if is_repeated_in_name(name.as_str(), credentials) {
            is_redacted = true;
            continue;
        }
        let mut text = value.as_bytes().to_vec();
        if !redact(&mut text, credentials) {
            clean.append(name.clone(), value.clone());
            continue;
        }
        is_redacted = true;
        // The replacement keeps a header value valid, so this never drops a header.
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            clean.append(name.clone(), value);
        }
    }
    *headers = clean;
    is_redacted
}

/// Returns whether a header's name, which is in lower case, contains a form of a secret, ignoring case.
fn is_repeated_in_name(name: &str, credentials: &[Credential]) -> bool {
    let patterns = credentials.iter().flat_map(Credential::patterns);
    patterns.into_iter().any(|pattern| {
        let length = pattern.bytes.len();
        name.len() >= length
            && name.as_bytes().windows(length).any(|part| part.eq_ignore_ascii_case(&pattern.bytes))
    })
}

/// The result of a search.
struct SecretMatches {
    /// The ranges of all secrets, sorted and disjoint.
    matches: Vec<Range<usize>>,
    /// The index at which a secret may begin that needs more text to complete, or the length of the text.
    undecided_from: usize,
}

fn find_secrets(text: &[u8], credentials: &[Credential]) -> SecretMatches {
    let patterns: Vec<&SecretPattern> = credentials.iter().flat_map(Credential::patterns).collect();
    // A match begins with the first byte of a pattern, or with an escape of that byte.
    let mut begins = [false; 256];
    for first in patterns.iter().filter_map(|pattern| pattern.bytes.first()).chain(ESCAPES) {
        begins[usize::from(*first)] = true;
    }
    let mut matches: Vec<Range<usize>> = Vec::new();
    let (mut ends, mut undecided_from) = (MatchEnds::default(), text.len());
    if patterns.is_empty() {
        return SecretMatches { matches, undecided_from };
    }
    // The base64 digits at both edges hold bits of the secret and of its neighbours, so they are replaced
    // too.
    let is_digit = |index: usize| text.get(index).is_some_and(|byte| is_base64(*byte));
    for (index, byte) in text.iter().enumerate().filter(|(_, byte)| begins[usize::from(**byte)]) {
        for pattern in &patterns {
            if !ESCAPES.contains(byte) && pattern.bytes.first() != Some(byte) {
                continue;
            }
            let start = index - usize::from(pattern.edges.0 && index > 0 && is_digit(index - 1));
            let match_end = ends.find_match_end(text, index, pattern);
            if ends.may_continue || (pattern.edges.1 && match_end == Some(text.len())) {
                undecided_from = undecided_from.min(start);
            }
            if let Some(end) = match_end {
                matches.push(start..end + usize::from(pattern.edges.1 && is_digit(end)));
            }
        }
    }
    // Matches of several secrets, or of several forms of one, may overlap. Each range is replaced once.
    matches.sort_unstable_by_key(|range| range.start);
    SecretMatches { matches: merge_overlapping(matches), undecided_from }
}

/// Merges ranges that touch or overlap. The input is sorted by start.
fn merge_overlapping(matches: Vec<Range<usize>>) -> Vec<Range<usize>> {
    matches.into_iter().fold(Vec::new(), |mut merged, range| {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
        merged
    })
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// The positions where a match of the bytes so far may end. There are several if a byte may be literal or
/// begin an escape.
#[derive(Default)]
struct MatchEnds {
    current: Vec<usize>,
    next: Vec<usize>,
    /// Whether more text could complete or extend a match of the last searched text.
    may_continue: bool,
}

impl MatchEnds {
    /// Returns the last position at which a match that begins at `start` ends.
    fn find_match_end(&mut self, text: &[u8], start: usize, pattern: &SecretPattern) -> Option<usize> {
        self.current.clear();
        self.current.push(start);
        self.may_continue = false;
        for (index, byte) in pattern.bytes.iter().enumerate() {
            self.next.clear();
            for position in &self.current {
                let position = if pattern.is_wrapped && index > 0 {
                    skip_line_break(text, *position)
                } else {
                    *position
                };
                self.may_continue |= is_cut_within(text, position);
                for_each_encoding(text, position, *byte, |end| {
                    if !self.next.contains(&end) {
                        self.next.push(end);
                    }
                });
            }
            if self.next.is_empty() {
                return None;
            }
            std::mem::swap(&mut self.current, &mut self.next);
        }
        self.current.iter().copied().max()
    }
}

/// Returns whether the text ends at `position`, or within a line break or an escape that begins there.
fn is_cut_within(text: &[u8], position: usize) -> bool {
    let is_digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    match text.get(position..).unwrap_or_default() {
        [] | [b'\r' | b'\\'] => true,
        [b'%', rest @ ..] => is_digits(rest) && rest.len() < if rest.starts_with(b"25") { 4 } else { 2 },
        [b'\\', b'u', rest @ ..] => is_digits(rest) && rest.len() < 4,
        [b'\\', b'x', rest @ ..] => is_digits(rest) && rest.len() < 2,
        [b'&', rest @ ..] => {
            rest.len() < MAX_ENTITY_BYTES
                && rest.iter().all(|byte| *byte == b'#' || byte.is_ascii_alphanumeric())
        }
        _ => false,
    }
}

fn skip_line_break(text: &[u8], position: usize) -> usize {
    match text.get(position..) {
        Some([b'\r', b'\n', ..]) => position + 2,
        Some([b'\n', ..]) => position + 1,
        _ => position,
    }
}

/// Calls `on_end` with the end of each encoding of `byte` that begins at `position`.
fn for_each_encoding(text: &[u8], position: usize, byte: u8, mut on_end: impl FnMut(usize)) {
    let rest = text.get(position..).unwrap_or_default();
    let Some(first) = rest.first() else { return };
    if *first == byte || (*first == b'+' && byte == b' ') {
        on_end(position + 1);
    }
    match rest {
        // `%41`, and `%2541` for a URL within a URL.
        [b'%', b'2', b'5', high, low, ..] if hexadecimal(&[*high, *low]) == Some(byte.into()) => {
            on_end(position + 5);
        }
        [b'%', high, low, ..] if hexadecimal(&[*high, *low]) == Some(byte.into()) => on_end(position + 3),
        [b'\\', b'u', a, b, c, d, ..] if hexadecimal(&[*a, *b, *c, *d]) == Some(byte.into()) => {
            on_end(position + 6);
        }
        [b'\\', b'x', high, low, ..] if hexadecimal(&[*high, *low]) == Some(byte.into()) => {
            on_end(position + 4);
        }
        [b'\\', escaped, ..] if *escaped == byte && byte.is_ascii_punctuation() => on_end(position + 2),
        [b'&', rest @ ..] => {
            let end = rest.iter().take(MAX_ENTITY_BYTES).position(|byte| *byte == b';');
            if let Some(end) = end.filter(|end| entity(&rest[..*end]) == Some(byte.into())) {
                on_end(position + end + 2);
            }
        }
        _ => {}
    }
}

/// Returns the character of an HTML entity, given without `&` and `;`. The names are those that common
/// escaping functions write.
fn entity(name: &[u8]) -> Option<u32> {
    let character = match name {
        b"amp" => b'&',
        b"lt" => b'<',
        b"gt" => b'>',
        b"quot" => b'"',
        b"apos" => b'\'',
        [b'#', b'x' | b'X', digits @ ..] => return hexadecimal(digits),
        [b'#', digits @ ..] => return str::from_utf8(digits).ok()?.parse().ok(),
        _ => return None,
    };
    Some(character.into())
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let is_digits = digits.iter().all(u8::is_ascii_hexdigit);
    u32::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_digits)?, 16).ok()
}

/// The bytes that begin an escape: `%41`, `\u0041`, `&#65;`, and `+`, which is a blank in a form (WHATWG URL,
/// "application/x-www-form-urlencoded parsing").
const ESCAPES: &[u8] = b"%\\&+";

/// The maximum length of an entity that is read, without `&`: 12 bytes, such as `#x000000041;`.
const MAX_ENTITY_BYTES: usize = 12;

mod pieces;

pub(crate) use pieces::Redactor;

#[cfg(test)]
mod tests;
