//! The character encoding of a text. The sources are tried in the order of the HTML standard: byte order mark,
//! `Content-Type`, a declaration in the text, and a guess from the bytes.
//!
//! The decoding never fails: an invalid byte becomes U+FFFD.

use std::borrow::Cow;

use chardetng::{EncodingDetector, Iso2022JpDetection, Utf8Detection};
use encoding_rs::{Encoding, UTF_8, UTF_16BE, UTF_16LE, WINDOWS_1252};

/// The number of bytes at the start of a text that are searched for a declaration. The HTML standard prescribes this
/// number.
const DECLARATION_BYTES: usize = 1024;

/// The number of bytes at the start of a text that a guess reads: 64 KiB. More bytes rarely change the guess, and the
/// cost is linear.
const GUESS_BYTES: usize = 64 << 10;

/// The kind of declaration that a text can contain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Declaration {
    /// `<meta charset>` and `<meta http-equiv>`.
    Meta,
    /// `<?xml encoding="…"?>`.
    Xml,
    /// No declaration.
    Absent,
}

/// Decodes a text, and returns it with the name of its encoding.
///
/// `label` is the `charset` of the `Content-Type`. `domain` is the last label of the host's name, which helps a guess.
pub(super) fn decode<'a>(
    bytes: &'a [u8],
    label: Option<&str>,
    declaration: Declaration,
    domain: Option<&str>,
) -> (Cow<'a, str>, &'static str) {
    let encoding = encoding_of(bytes, label, declaration, domain);
    // `decode` also removes a byte order mark.
    let (text, used_encoding, _replaced) = encoding.decode(bytes);
    (text, used_encoding.name())
}

fn encoding_of(
    bytes: &[u8],
    label: Option<&str>,
    declaration: Declaration,
    domain: Option<&str>,
) -> &'static Encoding {
    if let Some((encoding, _length)) = Encoding::for_bom(bytes) {
        return encoding;
    }
    let of_header = label.and_then(|label| Encoding::for_label(label.as_bytes()));
    let head = &bytes[..bytes.len().min(DECLARATION_BYTES)];
    let declared_encoding = || match declaration {
        Declaration::Meta => meta_encoding(head),
        Declaration::Xml => xml_encoding(head),
        Declaration::Absent => None,
    };
    of_header.or_else(declared_encoding).unwrap_or_else(|| guess(bytes, domain))
}

/// Guesses the encoding from the bytes. The guess is never ISO-2022-JP: its escape sequences let a page hide text
/// from readers that guess another encoding.
fn guess(bytes: &[u8], domain: Option<&str>) -> &'static Encoding {
    if std::str::from_utf8(bytes).is_ok() {
        return UTF_8;
    }
    let sample = &bytes[..bytes.len().min(GUESS_BYTES)];
    let mut detector = EncodingDetector::new(Iso2022JpDetection::Deny);
    detector.feed(sample, sample.len() == bytes.len());
    // The detector panics on a domain with upper-case or non-ASCII characters, so leave out such domains.
    let domain =
        domain.filter(|domain| !domain.is_empty() && domain.bytes().all(|byte| byte.is_ascii_lowercase()));
    // A long text that is not valid UTF-8 can still be UTF-8 with one broken byte.
    let utf8_detection =
        if utf8_with_few_faults(sample) { Utf8Detection::Allow } else { Utf8Detection::Deny };
    if utf8_detection == Utf8Detection::Allow {
        return UTF_8;
    }
    detector.guess(domain.map(str::as_bytes), utf8_detection)
}

/// Whether multi-byte characters are much more frequent than faulty bytes.
fn utf8_with_few_faults(bytes: &[u8]) -> bool {
    let (mut characters, mut faults) = (0_usize, 0_usize);
    for chunk in bytes.utf8_chunks() {
        characters += chunk.valid().chars().filter(|character| !character.is_ascii()).count();
        faults += usize::from(!chunk.invalid().is_empty());
    }
    characters > 20 * faults
}

/// Returns the encoding that a `<meta>` in these bytes declares. Comments are skipped.
fn meta_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let mut rest = bytes;
    while let Some(offset) = memchr::memchr(b'<', rest) {
        rest = &rest[offset..];
        if rest.starts_with(b"<!--") {
            rest = memchr::memmem::find(&rest[4..], b"-->").map_or(&[], |end| &rest[4 + end + 3..]);
            continue;
        }
        let is_meta = rest.len() > 5
            && rest[1..5].eq_ignore_ascii_case(b"meta")
            && matches!(rest[5], b' ' | b'\t' | b'\n' | b'\r' | b'\x0c' | b'/');
        if !is_meta {
            rest = &rest[1..];
            continue;
        }
        let end = memchr::memchr(b'>', rest).unwrap_or(rest.len());
        if let Some(encoding) = label_after(&rest[5..end], b"charset").and_then(Encoding::for_label) {
            return Some(web_encoding(encoding));
        }
        rest = &rest[end..];
    }
    None
}

/// Returns the encoding that the XML declaration names.
fn xml_encoding(bytes: &[u8]) -> Option<&'static Encoding> {
    let rest = bytes.strip_prefix(b"<?xml")?;
    let end = memchr::memmem::find(rest, b"?>")?;
    label_after(&rest[..end], b"encoding").and_then(Encoding::for_label).map(web_encoding)
}

/// The value after `name`, `=` and an optional quotation mark.
fn label_after<'a>(bytes: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    let offset = bytes.windows(name.len()).position(|window| window.eq_ignore_ascii_case(name))?;
    let rest = bytes[offset + name.len()..].trim_ascii_start().strip_prefix(b"=")?.trim_ascii_start();
    let rest = rest.strip_prefix(b"\"").or_else(|| rest.strip_prefix(b"'")).unwrap_or(rest);
    let ends_value =
        |byte: &u8| matches!(byte, b'"' | b'\'' | b';' | b' ' | b'\t' | b'\n' | b'\r' | b'>' | b'/');
    Some(&rest[..rest.iter().position(ends_value).unwrap_or(rest.len())])
}

/// Applies the corrections of the standard. A text whose declaration could be read is not UTF-16, and `x-user-defined`
/// means windows-1252.
fn web_encoding(encoding: &'static Encoding) -> &'static Encoding {
    if encoding == UTF_16BE || encoding == UTF_16LE {
        UTF_8
    } else if encoding.name() == "x-user-defined" {
        WINDOWS_1252
    } else {
        encoding
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(bytes: &[u8], label: Option<&str>, expected: (&str, &str)) {
        let (text, name) = decode(bytes, label, Declaration::Meta, None);
        assert_eq!((&*text, name), expected);
    }

    #[test]
    fn a_byte_order_mark_wins_over_the_header() {
        check(b"\xef\xbb\xbf\xc3\xa9", Some("iso-8859-1"), ("é", "UTF-8"));
        check(b"\xff\xfea\0", Some("utf-8"), ("a", "UTF-16LE"));
        check(b"\xfe\xff\0a", None, ("a", "UTF-16BE"));
    }

    #[test]
    fn the_header_wins_over_the_meta_element() {
        check(b"<meta charset=utf-8>\xe9", Some("latin1"), ("<meta charset=utf-8>é", "windows-1252"));
        check(b"<meta charset=koi8-r>\xc1", Some("no-such"), ("<meta charset=koi8-r>а", "KOI8-R"));
    }

    #[test]
    fn the_meta_element_is_found_in_its_forms() {
        for meta in [
            "<META CHARSET='windows-1251'>",
            "<meta name=x><meta charset = \"windows-1251\" />",
            "<!-- <meta charset=utf-8> --><meta http-equiv=Content-Type content='text/html; charset=windows-1251'>",
        ] {
            let bytes = [meta.as_bytes(), b"\xcf"].concat();
            check(&bytes, None, (&format!("{meta}П"), "windows-1251"));
        }
    }

    #[test]
    fn a_declared_utf_16_is_read_as_utf_8() {
        check(b"<meta charset=utf-16>\xc3\xa9", None, ("<meta charset=utf-16>é", "UTF-8"));
    }

    #[test]
    fn a_declaration_past_its_bound_is_not_read() {
        let bytes = [" ".repeat(1024).as_bytes(), b"<meta charset=koi8-r>\xc3\xa9"].concat();
        assert_eq!(decode(&bytes, None, Declaration::Meta, None).1, "UTF-8");
    }

    #[test]
    fn an_undeclared_encoding_is_guessed() {
        check(b"na\xefve caf\xe9", None, ("naïve café", "windows-1252"));
        let (japanese, _, _) = encoding_rs::SHIFT_JIS.encode("これは日本語の文章です。");
        check(&japanese, None, ("これは日本語の文章です。", "Shift_JIS"));
    }

    #[test]
    fn one_broken_byte_does_not_change_utf_8() {
        let text = "éàüößñ".repeat(20);
        let bytes = [text.as_bytes(), b"\xff"].concat();
        check(&bytes, None, (&format!("{text}\u{fffd}"), "UTF-8"));
    }

    #[test]
    fn an_xml_declaration_is_read_in_xml_alone() {
        let xml = b"<?xml version='1.0' encoding='KOI8-R'?>\xc1";
        assert_eq!(decode(xml, None, Declaration::Xml, None).1, "KOI8-R");
        assert_ne!(decode(xml, None, Declaration::Meta, None).1, "KOI8-R");
    }

    #[test]
    fn a_domain_of_any_form_is_taken() {
        for domain in ["", "JP", "日本", "xn--p1ai", "jp", "1"] {
            decode(b"\xe9\xe8", None, Declaration::Absent, Some(domain));
        }
    }
}
