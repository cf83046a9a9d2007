//! The tokens of an HTML text: tags and texts.
//!
//! Each byte is examined a bounded number of times, and a tag has a bounded number of attributes. So the time
//! is linear for every input. Comments, doctypes and processing instructions are skipped.

use super::{entities::decode, hidden};

/// The most attributes of a tag; further ones are skipped. Other parsers compare each attribute with all
/// before it.
const MAX_ATTRIBUTES: usize = 64;

/// The longest attribute value that is kept, in bytes. Longer values are embedded images and state of
/// scripts.
const MAX_VALUE_BYTES: usize = 8 << 10;

/// The longest tag or attribute name, in bytes; longer names are cut.
const MAX_NAME_BYTES: usize = 64;

/// A name in lower case and a decoded value.
pub(super) type Attribute = (String, String);

/// A token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum HtmlToken {
    /// A start tag: its name in lower case, its attributes, and whether it ends with `/>`.
    Start { name: String, attributes: Vec<Attribute>, closed: bool },
    /// An end tag: its name in lower case.
    End(String),
    /// Text with its references decoded.
    Text(String),
}

/// Splits a text into tokens.
#[derive(Debug)]
pub(super) struct HtmlTokens<'a> {
    text: &'a str,
    position: usize,
    /// The open element whose content is not markup.
    raw: Option<Raw>,
}

#[derive(Clone, Copy, Debug)]
struct Raw {
    name: &'static str,
    /// Whether references in the content are decoded.
    decodes: bool,
    /// Whether the content is dropped, as that of scripts and styles.
    dropped: bool,
}

/// Elements whose content is not markup.
const RAW: [Raw; 9] = [
    Raw { name: "script", decodes: false, dropped: true },
    Raw { name: "style", decodes: false, dropped: true },
    Raw { name: "iframe", decodes: false, dropped: true },
    Raw { name: "noembed", decodes: false, dropped: true },
    Raw { name: "title", decodes: true, dropped: false },
    Raw { name: "textarea", decodes: true, dropped: false },
    Raw { name: "xmp", decodes: false, dropped: false },
    Raw { name: "listing", decodes: true, dropped: false },
    Raw { name: "plaintext", decodes: false, dropped: false },
];

impl<'a> HtmlTokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0, raw: None }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    /// Reads the content of a raw element, up to its end tag.
    fn raw_text(&mut self, raw: Raw) -> Option<HtmlToken> {
        let rest = self.rest();
        let end = end_of_raw(rest, raw.name);
        self.position += end;
        let content = &rest[..end];
        if content.is_empty() || raw.dropped {
            return None;
        }
        Some(HtmlToken::Text(if raw.decodes { decode(content, InAttribute::No) } else { content.to_owned() }))
    }

    /// Reads the token at a `<`. `None` if it is skipped.
    fn markup(&mut self) -> Option<HtmlToken> {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        match bytes.get(1) {
            Some(b'!' | b'?') => {
                self.position += skipped(rest);
                None
            }
            Some(b'/') if bytes.get(2).is_some_and(u8::is_ascii_alphabetic) => {
                self.position += 2;
                let name = self.name();
                self.attributes();
                Some(HtmlToken::End(name))
            }
            Some(b'/') => {
                self.position += memchr::memchr(b'>', bytes).map_or(bytes.len(), |end| end + 1);
                None
            }
            Some(byte) if byte.is_ascii_alphabetic() => {
                self.position += 1;
                let name = self.name();
                let (attributes, closed) = self.attributes();
                self.raw = RAW.iter().find(|raw| raw.name == name).copied();
                Some(HtmlToken::Start { name, attributes, closed })
            }
            _ => {
                self.position += 1;
                Some(HtmlToken::Text("<".to_owned()))
            }
        }
    }

    /// Reads a tag's name.
    fn name(&mut self) -> String {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| is_space(byte) || byte == b'>' || byte == b'/');
        let end = end.unwrap_or(rest.len());
        self.position += end;
        rest[..rest.floor_char_boundary(end.min(MAX_NAME_BYTES))].to_ascii_lowercase()
    }

    /// Reads the attributes up to and including the `>`. Returns whether a `/` stands before the `>`.
    fn attributes(&mut self) -> (Vec<Attribute>, bool) {
        let mut attributes: Vec<Attribute> = Vec::new();
        let mut closed = false;
        let bytes = self.text.as_bytes();
        while let Some(byte) = bytes.get(self.position).copied() {
            if byte == b'>' {
                self.position += 1;
                return (attributes, closed);
            }
            if is_space(byte) || byte == b'/' {
                closed = byte == b'/' || (closed && is_space(byte));
                self.position += 1;
                continue;
            }
            closed = false;
            let (name, value) = self.attribute();
            // Attributes that hide an element always count. Otherwise a page could put one behind many
            // others.
            let is_full = attributes.len() >= MAX_ATTRIBUTES && !hidden::HIDING.contains(&name.as_str());
            let known = is_full || attributes.iter().any(|(other, _)| *other == name);
            if !known && !is_unused(&name) {
                attributes.push((name, value));
            }
        }
        (attributes, closed)
    }

    /// Reads one attribute.
    fn attribute(&mut self) -> Attribute {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        // A `=` at the beginning is a part of the name.
        let ends = |byte: &u8| is_space(*byte) || matches!(byte, b'=' | b'>' | b'/');
        let end = 1 + bytes[1..].iter().position(ends).unwrap_or(bytes.len() - 1);
        let end = rest.ceil_char_boundary(end);
        let name = rest[..rest.floor_char_boundary(end.min(MAX_NAME_BYTES))].to_ascii_lowercase();
        let spaces = bytes[end..].iter().take_while(|byte| is_space(**byte)).count();
        if bytes.get(end + spaces) != Some(&b'=') {
            self.position += end;
            return (name, String::new());
        }
        let after = end + spaces + 1;
        let begin = after + bytes[after..].iter().take_while(|byte| is_space(**byte)).count();
        let (from, to, next) = match bytes.get(begin) {
            Some(quote @ (b'"' | b'\'')) => {
                let length = memchr::memchr(*quote, &bytes[begin + 1..]);
                let to = length.map_or(bytes.len(), |length| begin + 1 + length);
                (begin + 1, to, (to + 1).min(bytes.len()))
            }
            _ => {
                let length = bytes[begin..].iter().position(|byte| is_space(*byte) || *byte == b'>');
                let to = length.map_or(bytes.len(), |length| begin + length);
                (begin, to, to)
            }
        };
        self.position += next;
        let value = if to - from > MAX_VALUE_BYTES {
            match name == "style" && hidden::style_hides(&decode(&rest[from..to], InAttribute::Yes)) {
                true => "display:none".to_owned(),
                false => String::new(),
            }
        } else {
            decode(&rest[from..to], InAttribute::Yes)
        };
        (name, value)
    }
}

impl Iterator for HtmlTokens<'_> {
    type Item = HtmlToken;

    fn next(&mut self) -> Option<HtmlToken> {
        loop {
            if self.position >= self.text.len() {
                return None;
            }
            if let Some(raw) = self.raw.take() {
                match self.raw_text(raw) {
                    Some(token) => return Some(token),
                    None => continue,
                }
            }
            let rest = self.rest();
            let end = memchr::memchr(b'<', rest.as_bytes()).unwrap_or(rest.len());
            if end > 0 {
                self.position += end;
                return Some(HtmlToken::Text(decode(&rest[..end], InAttribute::No)));
            }
            if let Some(token) = self.markup() {
                return Some(token);
            }
        }
    }
}

/// Whether no step reads an attribute of this name. Such attributes would take most of a page's memory.
fn is_unused(name: &str) -> bool {
    let data = name.starts_with("data-") && !matches!(name, "data-lang" | "data-language" | "data-src");
    let labels = name.starts_with("aria-") && name != "aria-hidden";
    data || labels || name.starts_with("on")
}

/// Whether a text is an attribute's value. There, a reference without `;` before `=` is not a reference.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InAttribute {
    No,
    Yes,
}

/// The end of a raw element's content. Without an end tag it is the end of the text.
fn end_of_raw(text: &str, name: &str) -> usize {
    if name == "plaintext" {
        return text.len();
    }
    let bytes = text.as_bytes();
    memchr::memmem::find_iter(bytes, b"</")
        .find(|at| {
            let after = &bytes[at + 2..];
            after.len() >= name.len()
                && after[..name.len()].eq_ignore_ascii_case(name.as_bytes())
                && after.get(name.len()).is_none_or(|byte| is_space(*byte) || matches!(byte, b'>' | b'/'))
        })
        .unwrap_or(text.len())
}

/// The length of a comment, doctype, CDATA section or instruction.
fn skipped(text: &str) -> usize {
    let bytes = text.as_bytes();
    if bytes.starts_with(b"<!-->") || bytes.starts_with(b"<!--->") {
        return memchr::memchr(b'>', bytes).map_or(bytes.len(), |end| end + 1);
    }
    if let Some(comment) = bytes.strip_prefix(b"<!--") {
        return memchr::memmem::find(comment, b"-->").map_or(bytes.len(), |end| 4 + end + 3);
    }
    // Also `<![CDATA[`, which HTML treats as a comment that is not shown.
    memchr::memchr(b'>', bytes).map_or(bytes.len(), |end| end + 1)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}
