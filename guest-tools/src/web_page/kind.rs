//! The kind of a body, from its `Content-Type` and its first bytes.
//!
//! The bytes decide if they are unmistakable (PDF, images). Between kinds of text the header decides.

use encoding_rs::{Encoding, UTF_16BE, UTF_16LE};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BodyKind {
    /// HTML, or XHTML.
    Html,
    /// Text that is returned unchanged: plain text, JSON, source code.
    Text,
    /// XML, which declares its encoding.
    Xml,
    /// An image of a type that models accept.
    Image,
    /// A PDF file.
    Pdf,
    /// Anything else.
    Other,
}

/// A parsed `Content-Type`: the type in lower case without parameters, and the `charset`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct MediaType {
    pub(super) essence: String,
    pub(super) charset: Option<String>,
}

/// The maximum length of a media type that is read from a header, in bytes.
const MAX_ESSENCE_BYTES: usize = 127;

impl MediaType {
    /// Parses the value of a header. A value that is not `type/subtype` gives an empty type.
    pub(super) fn parse(header: &str) -> Self {
        let mut parts = header.split(';');
        let essence = parts.next().unwrap_or_default().trim().to_ascii_lowercase();
        let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$&-^_.+".contains(&byte);
        let well_formed = essence.len() <= MAX_ESSENCE_BYTES
            && essence.split_once('/').is_some_and(|(first, second)| {
                !first.is_empty() && !second.is_empty() && (first.bytes().chain(second.bytes())).all(token)
            });
        let charset = parts.find_map(|part| {
            let (name, value) = part.split_once('=')?;
            let value = value.trim().trim_matches(['"', '\'']);
            name.trim().eq_ignore_ascii_case("charset").then(|| value.to_owned())
        });
        Self { essence: if well_formed { essence } else { String::new() }, charset }
    }

    /// Whether the text is UTF-16, in which every second byte can be 0.
    fn is_wide(&self) -> bool {
        let encoding = self.charset.as_deref().and_then(|label| Encoding::for_label(label.as_bytes()));
        encoding.is_some_and(|encoding| encoding == UTF_16LE || encoding == UTF_16BE)
    }
}

/// The kind of a body and its media type.
pub(super) fn kind_of(bytes: &[u8], header: &MediaType) -> (BodyKind, String) {
    if let Some((kind, essence)) = kind_by_signature(bytes) {
        return (kind, essence.to_owned());
    }
    let essence = header.essence.as_str();
    let declared_kind = match essence {
        "text/html" | "application/xhtml+xml" => Some(BodyKind::Html),
        "text/xml" | "application/xml" | "image/svg+xml" => Some(BodyKind::Xml),
        _ if essence.ends_with("+xml") => Some(BodyKind::Xml),
        _ if essence.starts_with("text/") || essence.ends_with("+json") => Some(BodyKind::Text),
        _ if TEXT_TYPES.contains(&essence) => Some(BodyKind::Text),
        // These types do not identify the content, so the bytes decide.
        "" | "application/octet-stream" | "application/unknown" | "unknown/unknown" | "*/*" => None,
        _ => Some(BodyKind::Other),
    };
    match declared_kind {
        Some(BodyKind::Text | BodyKind::Xml | BodyKind::Html)
            if !header.is_wide() && is_binary(bytes, MAX_CONTROLS_PER_MILLE) =>
        {
            (BodyKind::Other, type_or_default(essence))
        }
        // Some servers send pages as plain text by mistake. But a `text/plain` that starts like a page is usually
        // source code that was requested as text.
        Some(kind) => (kind, type_or_default(essence)),
        None => kind_by_text(bytes, essence),
    }
}

/// Types outside `text/` whose content is text.
const TEXT_TYPES: [&str; 14] = [
    "application/json",
    "application/json5",
    "application/ndjson",
    "application/x-ndjson",
    "application/javascript",
    "application/ecmascript",
    "application/x-javascript",
    "application/typescript",
    "application/toml",
    "application/yaml",
    "application/x-yaml",
    "application/x-sh",
    "application/sql",
    "application/graphql",
];

fn type_or_default(essence: &str) -> String {
    if essence.is_empty() { "application/octet-stream".to_owned() } else { essence.to_owned() }
}

/// Returns the kinds that the first bytes identify.
fn kind_by_signature(bytes: &[u8]) -> Option<(BodyKind, &'static str)> {
    let is_webp = bytes.len() > 12 && bytes.starts_with(b"RIFF") && &bytes[8..12] == b"WEBP";
    Some(match bytes {
        [b'%', b'P', b'D', b'F', b'-', ..] => (BodyKind::Pdf, "application/pdf"),
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => (BodyKind::Image, "image/png"),
        [0xff, 0xd8, 0xff, ..] => (BodyKind::Image, "image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => (BodyKind::Image, "image/gif"),
        _ if is_webp => (BodyKind::Image, "image/webp"),
        _ => return None,
    })
}

/// Returns the kind of a body whose header names no type.
fn kind_by_text(bytes: &[u8], essence: &str) -> (BodyKind, String) {
    if is_binary(bytes, NO_CONTROLS) {
        return (BodyKind::Other, type_or_default(essence));
    }
    let trimmed = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes).trim_ascii_start();
    if trimmed.starts_with(b"<?xml") && !begins_html(&trimmed[..trimmed.len().min(512)]) {
        return (BodyKind::Xml, "text/xml".to_owned());
    }
    if begins_html(trimmed) {
        return (BodyKind::Html, "text/html".to_owned());
    }
    (BodyKind::Text, "text/plain".to_owned())
}

/// Whether a text starts like a page, after comments. XHTML needs `<html` near its start.
fn begins_html(start: &[u8]) -> bool {
    let mut start = start;
    while let Some(rest) = start.strip_prefix(b"<!--") {
        start = memchr::memmem::find(rest, b"-->").map_or(&[], |end| rest[end + 3..].trim_ascii_start());
    }
    if start.starts_with(b"<?xml") {
        return start.windows(5).any(|window| window.eq_ignore_ascii_case(b"<html"));
    }
    const TAGS: [&str; 18] = [
        "!doctype html",
        "html",
        "head",
        "body",
        "title",
        "meta",
        "script",
        "style",
        "div",
        "table",
        "p",
        "h1",
        "a",
        "br",
        "iframe",
        "font",
        "b",
        "frameset",
    ];
    let Some(name) = start.strip_prefix(b"<") else { return false };
    TAGS.iter().any(|tag| {
        name.len() > tag.len()
            && name[..tag.len()].eq_ignore_ascii_case(tag.as_bytes())
            && matches!(name[tag.len()], b' ' | b'>' | b'\n' | b'\r' | b'\t' | b'/')
    })
}

/// The maximum number of control characters per thousand bytes in a body that is declared as text. A few are errors of
/// the page.
const MAX_CONTROLS_PER_MILLE: usize = 50;
const NO_CONTROLS: usize = 0;

/// Whether the first bytes are not text, according to their control characters. UTF-16 has NUL bytes, and is
/// identified by its byte order mark.
fn is_binary(bytes: &[u8], max_per_mille: usize) -> bool {
    if bytes.starts_with(b"\xff\xfe") || bytes.starts_with(b"\xfe\xff") {
        return false;
    }
    let head = &bytes[..bytes.len().min(1024)];
    let controls = head.iter().filter(|byte| matches!(byte, 0..=0x08 | 0x0e..=0x1a | 0x1c..=0x1f)).count();
    controls * 1000 > head.len() * max_per_mille
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(header: &str, bytes: &[u8], expected: (BodyKind, &str)) {
        let (kind, essence) = kind_of(bytes, &MediaType::parse(header));
        assert_eq!((kind, essence.as_str()), expected);
    }

    #[test]
    fn the_header_names_the_kind_of_a_text() {
        check("text/html; charset=utf-8", b"x", (BodyKind::Html, "text/html"));
        check("APPLICATION/XHTML+XML", b"x", (BodyKind::Html, "application/xhtml+xml"));
        check("application/json", b"<html>", (BodyKind::Text, "application/json"));
        check("application/ld+json", b"{}", (BodyKind::Text, "application/ld+json"));
        check("text/plain", b"<!doctype html>", (BodyKind::Text, "text/plain"));
        check("application/rss+xml", b"<rss/>", (BodyKind::Xml, "application/rss+xml"));
        check("image/svg+xml", b"<svg/>", (BodyKind::Xml, "image/svg+xml"));
        check("application/zip", b"PK\x03\x04", (BodyKind::Other, "application/zip"));
        check("video/mp4", b"text", (BodyKind::Other, "video/mp4"));
    }

    #[test]
    fn unmistakable_bytes_win_over_the_header() {
        check("text/html", b"%PDF-1.7", (BodyKind::Pdf, "application/pdf"));
        check("text/plain", b"\x89PNG\r\n\x1a\n..", (BodyKind::Image, "image/png"));
        check("", b"\xff\xd8\xff\xe0", (BodyKind::Image, "image/jpeg"));
        check("image/png", b"RIFF\0\0\0\0WEBPVP8 ", (BodyKind::Image, "image/webp"));
    }

    #[test]
    fn binary_data_is_never_shown_as_text() {
        check("text/html", b"\0\x01\x02", (BodyKind::Other, "text/html"));
        check("image/png", b"not an image", (BodyKind::Other, "image/png"));
        check("", b"\x7fELF\x02\x01", (BodyKind::Other, "application/octet-stream"));
        check("text/plain", b"\xff\xfea\0", (BodyKind::Text, "text/plain"));
    }

    #[test]
    fn a_body_without_a_type_is_known_by_its_beginning() {
        check("", b"\n <!-- x --> <!DOCTYPE html>", (BodyKind::Html, "text/html"));
        check("application/octet-stream", b"<p>x", (BodyKind::Html, "text/html"));
        check("", b"<?xml version='1.0'?><feed/>", (BodyKind::Xml, "text/xml"));
        check("", b"<?xml version='1.0'?><html xmlns='x'>", (BodyKind::Html, "text/html"));
        check("nonsense", b"<pre", (BodyKind::Text, "text/plain"));
        check("", b"", (BodyKind::Text, "text/plain"));
    }

    #[test]
    fn a_malformed_type_gives_none() {
        assert_eq!(MediaType::parse("a/b c; charset=\"X\"").charset.as_deref(), Some("X"));
        for header in ["", ";", "/", "a/", "a b/c", "text/\u{1b}[0m", &"a/b".repeat(100)] {
            assert_eq!(MediaType::parse(header).essence, "", "{header}");
        }
    }
}
