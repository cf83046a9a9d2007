//! Finds secrets in responses, and takes them out before anything else sees the bytes.
//!
//! A server that echoes its request, or reports an error with the header that it refused, repeats the secret. It is
//! found as it is, in base64 at any of the three alignments and in both alphabets, in hexadecimal and in UTF-16; and
//! each of these with any of its bytes escaped as in URLs, JSON, HTML or a string literal. This
//! catches careless servers. A server that wants to pass its own secret on can write it in another way.

use std::ops::Range;

use base64::{
    Engine as _,
    engine::general_purpose::{STANDARD, URL_SAFE},
};
use http::{HeaderMap, HeaderValue};
use zeroize::{Zeroize as _, Zeroizing};

use crate::{Credential, SecretValue};

/// What stands in the place of a secret. It has no character that means anything in a URL, a header, JSON, HTML or
/// Markdown, and is not longer than the shortest secret, so that redacting never makes a body larger.
pub(crate) const REDACTED: &[u8] = b"REDACTED";

const _: () = assert!(REDACTED.len() <= SecretValue::MIN_BYTES);

/// One way to write a secret.
pub(crate) struct Pattern {
    bytes: Zeroizing<Vec<u8>>,
    /// Whether line breaks may stand between its bytes, as MIME writes base64 (RFC 2045, section 6.8).
    is_wrapped: bool,
    /// Whether the character before, and the one after, hold some bits of the secret beside others.
    edges: (bool, bool),
}

/// The ways to write a value. Of a header of the scheme `Basic` also those of its password, which the value encodes.
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

/// The characters of base64 that the value alone decides, where it begins `offset` bytes after a group of three.
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

/// Takes all secrets out of a text. Returns whether there were any.
pub(crate) fn redact(text: &mut Vec<u8>, credentials: &[Credential]) -> bool {
    let Found { places, .. } = find(text, credentials);
    if places.is_empty() {
        return false;
    }
    let clean = without(text, &places);
    text.zeroize();
    *text = clean;
    true
}

/// The text with [`REDACTED`] in these places, which are sorted and disjoint.
fn without(text: &[u8], places: &[Range<usize>]) -> Vec<u8> {
    let mut clean = Vec::with_capacity(text.len());
    let mut from = 0;
    for place in places {
        clean.extend_from_slice(&text[from..place.start]);
        clean.extend_from_slice(REDACTED);
        from = place.end;
    }
    clean.extend_from_slice(&text[from..]);
    clean
}

/// Takes all secrets out of a text of ours, such as an error that names what a server has sent.
#[must_use]
pub fn redact_text(text: String, credentials: &[Credential]) -> String {
    let mut bytes = text.into_bytes();
    redact(&mut bytes, credentials);
    // A pattern is of ASCII characters, so that none of another character's bytes are gone.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Takes all secrets out of headers. One whose name repeats a secret is dropped. Returns whether there were any.
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
        // A value of a header stays one with other printable characters in it.
        if let Ok(value) = HeaderValue::from_bytes(&text) {
            clean.append(name.clone(), value);
        }
    }
    *headers = clean;
    is_redacted
}

/// Names of headers arrive in lower case.
fn is_repeated_in_name(name: &str, credentials: &[Credential]) -> bool {
    let patterns = credentials.iter().flat_map(Credential::patterns);
    patterns.into_iter().any(|pattern| {
        let length = pattern.bytes.len();
        name.len() >= length
            && name.as_bytes().windows(length).any(|part| part.eq_ignore_ascii_case(&pattern.bytes))
    })
}

/// What a search has found.
struct Found {
    /// The places of all secrets, sorted and disjoint.
    places: Vec<Range<usize>>,
    /// Where the text begins that may be the beginning of a secret which goes on behind its end; the text's length
    /// without such a beginning.
    open: usize,
}

fn find(text: &[u8], credentials: &[Credential]) -> Found {
    let patterns: Vec<&Pattern> = credentials.iter().flat_map(Credential::patterns).collect();
    // A match begins with the first byte of a pattern, or with an escape that may stand for it: `%41`, `\u0041`, `&#65;`.
    let mut begins = [false; 256];
    for first in patterns.iter().filter_map(|pattern| pattern.bytes.first()).chain(b"%\\&") {
        begins[usize::from(*first)] = true;
    }
    let mut places: Vec<Range<usize>> = Vec::new();
    let (mut ends, mut open) = (Ends::default(), text.len());
    if patterns.is_empty() {
        return Found { places, open };
    }
    // In base64 the digits at both edges hold bits of the secret together with those of its neighbours.
    let is_digit = |at: usize| text.get(at).is_some_and(|byte| is_base64(*byte));
    for (at, byte) in text.iter().enumerate().filter(|(_, byte)| begins[usize::from(**byte)]) {
        let is_escape = b"%\\&".contains(byte);
        for pattern in &patterns {
            if !is_escape && pattern.bytes.first() != Some(byte) {
                continue;
            }
            let start = at - usize::from(pattern.edges.0 && at > 0 && is_digit(at - 1));
            let found = ends.of_match(text, at, pattern);
            if ends.is_open || (found == Some(text.len()) && pattern.edges.1) {
                open = open.min(start);
            }
            if let Some(end) = found {
                places.push(start..end + usize::from(pattern.edges.1 && is_digit(end)));
            }
        }
    }
    // Matches of several secrets, or of forms of one, may overlap: each place is replaced once.
    places.sort_unstable_by_key(|place| place.start);
    let places: Vec<Range<usize>> = places.into_iter().fold(Vec::new(), |mut merged, next| {
        match merged.last_mut() {
            Some(last) if next.start <= last.end => last.end = last.end.max(next.end),
            _ => merged.push(next),
        }
        merged
    });
    Found { places, open }
}

fn is_base64(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte)
}

/// The positions where a match of the bytes so far may end. There are several where a byte can stand for itself or begin
/// an escape.
#[derive(Default)]
struct Ends {
    now: Vec<usize>,
    next: Vec<usize>,
    /// Whether the last text could go on so that it matches, or matches more.
    is_open: bool,
}

impl Ends {
    /// The last place where a match that begins here ends.
    fn of_match(&mut self, text: &[u8], at: usize, pattern: &Pattern) -> Option<usize> {
        self.now.clear();
        self.now.push(at);
        self.is_open = false;
        for (index, byte) in pattern.bytes.iter().enumerate() {
            self.next.clear();
            for at in &self.now {
                let at = if pattern.is_wrapped && index > 0 { after_break(text, *at) } else { *at };
                self.is_open |= ends_within(text, at);
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

/// Whether the text ends before the next character, or within a line break or an escape that may stand for it.
fn ends_within(text: &[u8], at: usize) -> bool {
    let is_digits = |bytes: &[u8]| bytes.iter().all(u8::is_ascii_hexdigit);
    match text.get(at..).unwrap_or_default() {
        [] | [b'\r'] => true,
        [b'%', rest @ ..] => is_digits(rest) && rest.len() < if rest.starts_with(b"25") { 4 } else { 2 },
        [b'\\'] => true,
        [b'\\', b'u', rest @ ..] => is_digits(rest) && rest.len() < 4,
        [b'\\', b'x', rest @ ..] => is_digits(rest) && rest.len() < 2,
        [b'&', rest @ ..] => {
            rest.len() <= MAX_ENTITY_BYTES
                && rest.iter().all(|byte| *byte == b'#' || byte.is_ascii_alphanumeric())
        }
        _ => false,
    }
}

fn after_break(text: &[u8], at: usize) -> usize {
    match text.get(at..) {
        Some([b'\r', b'\n', ..]) => at + 2,
        Some([b'\n', ..]) => at + 1,
        _ => at,
    }
}

/// Calls `found` with the end of each form of a byte that stands here.
fn for_each_encoding(text: &[u8], at: usize, byte: u8, mut found: impl FnMut(usize)) {
    let rest = text.get(at..).unwrap_or_default();
    let Some(first) = rest.first() else { return };
    if *first == byte || (*first == b'+' && byte == b' ') {
        found(at + 1);
    }
    match rest {
        // `%41`, and `%2541` where a URL stands in a URL.
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

mod pieces;

pub(crate) use pieces::Redactor;

#[cfg(test)]
mod tests;
