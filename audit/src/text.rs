//! Formats the strings of a row: truncated, escaped, on one line. This module does not know about rows.
//!
//! The limit counts escaped bytes. If it counted raw bytes, a model could use control characters to make a
//! row six times as long.

use std::io::Write as _;

use portcullis_types::is_deceptive;

/// The space for `…[cut: N bytes]`, for any `N`.
const MARKER_BYTES: usize = 40;

/// Appends `text` as a JSON string of at most `limit` bytes between the quotes. `limit` must be at least
/// [`MARKER_BYTES`]. If the text is longer, a marker with the length of the whole text replaces its end. The
/// function is idempotent: appending its output again gives the same string.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str, limit: usize) {
    out.push(b'"');
    let start = out.len();
    if text.len() <= limit && text.bytes().all(is_plain) {
        out.extend_from_slice(text.as_bytes());
    } else if !push_escaped(out, text, start, limit) {
        let _ = write!(out, "…[cut: {} bytes]", text.len());
    }
    out.push(b'"');
}

/// Appends a number.
pub(super) fn push_number(out: &mut Vec<u8>, number: u64) {
    // Writing to a `Vec` cannot fail.
    let _ = write!(out, "{number}");
}

/// Appends the escaped text. If it does not fit, appends only as much as leaves space for the marker,
/// and returns `false`.
fn push_escaped(out: &mut Vec<u8>, text: &str, start: usize, limit: usize) -> bool {
    let mut cut_at = start;
    for char in text.chars() {
        if out.len() - start <= limit.saturating_sub(MARKER_BYTES) {
            // The last position at which the marker still fits.
            cut_at = out.len();
        }
        push_char(out, char);
        if out.len() - start > limit {
            out.truncate(cut_at);
            return false;
        }
    }
    true
}

fn push_char(out: &mut Vec<u8>, char: char) {
    match char {
        '"' => out.extend_from_slice(b"\\\""),
        '\\' => out.extend_from_slice(b"\\\\"),
        '\n' => out.extend_from_slice(b"\\n"),
        '\r' => out.extend_from_slice(b"\\r"),
        '\t' => out.extend_from_slice(b"\\t"),
        char if is_deceptive(char) => {
            // JSON escapes UTF-16 code units, and a character beyond U+FFFF has two.
            for unit in char.encode_utf16(&mut [0; 2]) {
                let _ = write!(out, "\\u{unit:04x}");
            }
        }
        char => out.extend_from_slice(char.encode_utf8(&mut [0; 4]).as_bytes()),
    }
}

fn is_plain(byte: u8) -> bool {
    matches!(byte, 0x20..=0x7e) && byte != b'"' && byte != b'\\'
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(text: &str, limit: usize, expected: &str) {
        let mut out = Vec::new();
        push_string(&mut out, text, limit);
        assert_eq!(String::from_utf8_lossy(&out), expected);
    }

    #[test]
    fn strings_are_escaped_and_cut() {
        check("plain", 64, r#""plain""#);
        check("a\"b\\c\nd\0", 64, r#""a\"b\\c\nd\u0000""#);
        check("\u{2800}\u{3164}\u{e0041}", 64, r#""\u2800\u3164\udb40\udc41""#);
        check("\u{2028}\u{202e}\u{85}\u{1b}ä😀", 64, r#""\u2028\u202e\u0085\u001bä😀""#);
        check(&"a".repeat(64), 64, &format!("\"{}\"", "a".repeat(64)));
        check(&"a".repeat(65), 64, &format!("\"{}…[cut: 65 bytes]\"", "a".repeat(24)));
        check(&"\0".repeat(20), 64, &format!("\"{}…[cut: 20 bytes]\"", "\\u0000".repeat(4)));
    }

    proptest! {
        #[test]
        fn every_string_is_bounded_json_on_one_line_and_stays_as_it_is(text in any::<String>(), limit in 48_usize..200) {
            let mut once = Vec::new();
            push_string(&mut once, &text, limit);
            prop_assert!(once.len() <= limit + 2);
            prop_assert!(!once.contains(&b'\n'));
            let read: String = serde_json::from_slice(&once).expect("is JSON");
            if !read.contains("[cut: ") {
                prop_assert_eq!(&read, &text);
            }
            let mut twice = Vec::new();
            push_string(&mut twice, &read, limit);
            prop_assert_eq!(once, twice);
        }
    }
}
