//! Finds secrets in responses, and replaces them before anything else sees the bytes.
//!
//! A server that echoes its request, or reports an error with the refused header, repeats the secret. The
//! search finds the raw value and its forms in base64 (any of the three alignments, both alphabets),
//! hexadecimal and UTF-16. Each form may have bytes that are escaped as in URLs, JSON, HTML or a string
//! literal. This protects against careless servers. A server that wants to pass its own secret on can write
//! it in another form.

use std::ops::Range;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use http::{HeaderMap, HeaderValue};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{Credential, SecretValue};

/// The replacement of a secret. It has no special meaning in a URL, a header, JSON, HTML or Markdown, and is
/// not longer than the shortest secret, so redacting never enlarges a body.
pub(crate) const REDACTED: &[u8] = b"REDACTED";

const _: () = assert!(REDACTED.len() <= SecretValue::MIN_BYTES);

/// One form of a secret.
pub(crate) struct Pattern {
    bytes: Zeroizing<Vec<u8>>,
    /// Whether line breaks may stand between its bytes, as MIME writes base64 (RFC 2045, section 6.8).
    is_wrapped: bool,
    /// Whether the character before the form, and the one after it, hold bits of the secret together with
    /// others.
    edges: (bool, bool),
}

/// The forms of a value. For a header of the scheme `Basic` they include the forms of the password that the
/// value encodes.
pub(crate) fn patterns(value: &[u8], before: &str) -> Vec<Pattern> {
    let mut found = Vec::new();
    add_patterns(&mut found, value);
    if before.trim_ascii().eq_ignore_ascii_case("basic")
        && let Ok(pair) = STANDARD.decode(value).map(Zeroizing::new)
        && let Some(colon) = pair.iter().position(|byte| *byte == b':')
    {
        for part in [&pair[..], &pair[colon + 1..]] {
            if part.len() >= SecretValue::MIN_BYTES {
                add_patterns(&mut found, part);
            }
        }
    }
    found
}

fn add_patterns(found: &mut Vec<Pattern>, value: &[u8]) {
    let plain = |bytes| Pattern { bytes: Zeroizing::new(bytes), is_wrapped: false, edges: (false, false) };
    let in_hexadecimal = |digits: &[u8; 16]| {
        let digit = |byte: u8| [digits[usize::from(byte >> 4)], digits[usize::from(byte & 15)]];
        value.iter().copied().flat_map(digit).collect()
    };
    let mut utf16: Vec<u8> = value.iter().flat_map(|byte| [*byte, 0]).collect();
    utf16.pop();
    found.extend(
        [value.to_vec(), in_hexadecimal(b"0123456789abcdef"), in_hexadecimal(b"0123456789ABCDEF"), utf16]
            .map(plain),
    );
    for engine in [STANDARD, URL_SAFE] {
        found.extend((0..3).map(|offset| aligned(value, offset, &engine)));
    }
}

/// The base64 digits determined by the value alone, when it starts `offset` bytes into a three-byte group.
fn aligned(value: &[u8], offset: usize, engine: &base64::engine::GeneralPurpose) -> Pattern {
    let mut padded = Zeroizing::new(vec![0; offset]);
    padded.extend_from_slice(value);
    let mut text = Zeroizing::new(engine.encode(&padded).into_bytes());
    let first = (8 * offset).div_ceil(6);
    let bits = 8 * (offset + value.len());
    text.truncate(bits / 6);
    let bytes = Zeroizing::new(text[first..].to_vec());
    Pattern { bytes, is_wrapped: true, edges: (offset != 0, !bits.is_multiple_of(6)) }
}

/// Replaces all secrets in a text. Returns whether there were any.
pub(crate) fn redact(text: &mut Vec<u8>, credentials: &[Credential]) -> bool {
    let found = find(text, credentials);
    if found.is_empty() {
        return false;
    }
    let mut clean = Vec::with_capacity(text.len());
    let mut from = 0;
    for place in found {
        clean.extend_from_slice(&text[from..place.start]);
        clean.extend_from_slice(REDACTED);
        from = place.end;
    }
    clean.extend_from_slice(&text[from..]);
    text.zeroize();
    *text = clean;
    true
}

/// Replaces all secrets in a text of the host, such as an error that quotes a server.
#[must_use]
pub fn redact_text(text: String, credentials: &[Credential]) -> String {
    let mut bytes = text.into_bytes();
    redact(&mut bytes, credentials);
    // A pattern consists of ASCII characters, so no byte of another character is lost.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Replaces all secrets in headers. A header whose name repeats a secret is dropped. Returns whether there
/// were any.
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
        // With the replacement, a valid header value stays valid.
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            clean.append(name.clone(), value);
        }
    }
    *headers = clean;
    is_redacted
}

/// Header names arrive in lower case.
fn is_repeated_in_name(name: &str, credentials: &[Credential]) -> bool {
    let patterns = credentials.iter().flat_map(Credential::patterns);
    patterns.into_iter().any(|pattern| {
        let length = pattern.bytes.len();
        name.len() >= length
            && name.as_bytes().windows(length).any(|part| part.eq_ignore_ascii_case(&pattern.bytes))
    })
}

/// The places of all secrets, sorted and disjoint.
fn find(text: &[u8], credentials: &[Credential]) -> Vec<Range<usize>> {
    let patterns: Vec<&Pattern> = credentials.iter().flat_map(Credential::patterns).collect();
    // A match begins with the first byte of a pattern, or with an escape that may stand for it: `%41`, `\u0041`, `&#65;`.
    let mut begins = [false; 256];
    for first in patterns.iter().filter_map(|pattern| pattern.bytes.first()).chain(b"%\\&") {
        begins[usize::from(*first)] = true;
    }
    let mut places: Vec<Range<usize>> = Vec::new();
    let mut ends = Ends::default();
    if patterns.is_empty() {
        return places;
    }
    for (at, byte) in text.iter().enumerate().filter(|(_, byte)| begins[usize::from(**byte)]) {
        let is_escape = b"%\\&".contains(byte);
        for pattern in &patterns {
            if (is_escape || pattern.bytes.first() == Some(byte))
                && let Some(end) = ends.of_match(text, at, pattern)
            {
                // In base64 the digits at both edges hold bits of the secret together with those of its neighbours.
                let is_digit = |at: usize| text.get(at).is_some_and(|byte| is_base64(*byte));
                let start = at - usize::from(pattern.edges.0 && at > 0 && is_digit(at - 1));
                let end = end + usize::from(pattern.edges.1 && is_digit(end));
                places.push(start..end);
            }
        }
    }
    // Matches of several secrets, or of several forms of one, may overlap. Each place is replaced once.
    places.sort_unstable_by_key(|place| place.start);
    places.into_iter().fold(Vec::new(), |mut merged, next| {
        match merged.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => merged.push(next),
        }
        merged
    })
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// The positions where a match of the bytes so far may end. There are several if a byte may stand for itself
/// or begin an escape.
#[derive(Default)]
struct Ends {
    now: Vec<usize>,
    next: Vec<usize>,
}

impl Ends {
    /// The last position at which a match that begins here ends.
    fn of_match(&mut self, text: &[u8], at: usize, pattern: &Pattern) -> Option<usize> {
        self.now.clear();
        self.now.push(at);
        for (index, byte) in pattern.bytes.iter().enumerate() {
            self.next.clear();
            for at in &self.now {
                let at = if pattern.is_wrapped && index > 0 { after_break(text, *at) } else { *at };
                for_each_encoding(text, at, *byte, |end| {
                    if !self.next.contains(&end) {
                        self.next.push(end);
                    }
                });
            }
            if self.next.is_empty() {
                return None;
            }
            std::mem::swap(&mut self.now, &mut self.next);
        }
        self.now.iter().copied().max()
    }
}

fn after_break(text: &[u8], at: usize) -> usize {
    match text.get(at..) {
        Some([b'\r', b'\n', ..]) => at + 2,
        Some([b'\n', ..]) => at + 1,
        _ => at,
    }
}

/// Calls `found` with the end of each encoding of a byte at this position.
fn for_each_encoding(text: &[u8], at: usize, byte: u8, mut found: impl FnMut(usize)) {
    let rest = text.get(at..).unwrap_or_default();
    let Some(first) = rest.first() else { return };
    if *first == byte || (*first == b'+' && byte == b' ') {
        found(at + 1);
    }
    match rest {
        // `%41`, and `%2541` for a URL within a URL.
        [b'%', b'2', b'5', high, low, ..] if hexadecimal(&[*high, *low]) == Some(byte.into()) => {
            found(at + 5);
        }
        [b'%', high, low, ..] if hexadecimal(&[*high, *low]) == Some(byte.into()) => found(at + 3),
        [b'\\', b'u', a, b, c, d, ..] if hexadecimal(&[*a, *b, *c, *d]) == Some(byte.into()) => found(at + 6),
        [b'\\', b'x', high, low, ..] if hexadecimal(&[*high, *low]) == Some(byte.into()) => found(at + 4),
        [b'\\', escaped, ..] if *escaped == byte && byte.is_ascii_punctuation() => found(at + 2),
        [b'&', rest @ ..] => {
            let end = rest.iter().take(MAX_ENTITY_BYTES).position(|byte| *byte == b';');
            if let Some(end) = end.filter(|end| entity(&rest[..*end]) == Some(byte.into())) {
                found(at + end + 2);
            }
        }
        _ => {}
    }
}

/// The character of an HTML entity, between `&` and `;`. The names are those that escaping functions write.
fn entity(name: &[u8]) -> Option<u32> {
    let named = match name {
        b"amp" => b'&',
        b"lt" => b'<',
        b"gt" => b'>',
        b"quot" => b'"',
        b"apos" => b'\'',
        [b'#', b'x' | b'X', digits @ ..] => return hexadecimal(digits),
        [b'#', digits @ ..] => return str::from_utf8(digits).ok()?.parse().ok(),
        _ => return None,
    };
    Some(named.into())
}

fn hexadecimal(digits: &[u8]) -> Option<u32> {
    let is_digits = digits.iter().all(u8::is_ascii_hexdigit);
    u32::from_str_radix(str::from_utf8(digits).ok().filter(|_| is_digits)?, 16).ok()
}

/// The longest entity that is read, without `&`: `#x0000041;` with its zeros.
const MAX_ENTITY_BYTES: usize = 12;

#[cfg(test)]
mod tests;
