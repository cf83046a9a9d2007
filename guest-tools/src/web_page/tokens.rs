//! Splits an HTML text into tokens: tags and texts.
//!
//! Each byte is examined a bounded number of times, and a tag has a bounded number of attributes, so the time is linear
//! for every input. Comments, doctypes and processing instructions are skipped.

use super::{entities::decode, hidden};

/// The maximum number of attributes of a tag. Further ones are skipped, because each attribute is compared with all
/// earlier ones, in other parsers as well.
const MAX_ATTRIBUTES: usize = 64;

/// The maximum length of an attribute value that is kept: 8 KiB. Longer values are embedded images and the state of
/// scripts.
const MAX_VALUE_BYTES: usize = 8 << 10;

/// The maximum length of the name of a tag or an attribute, in bytes. Longer names are cut.
const MAX_NAME_BYTES: usize = 64;

/// A name in lower case, with a decoded value.
pub(super) type Attribute = (String, String);

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
    /// Whether the content is dropped, like the content of scripts and styles.
    is_dropped: bool,
}

/// Elements whose content is not markup.
const RAW_TEXT_ELEMENTS: [Raw; 9] = [
    Raw { name: "script", decodes: false, is_dropped: true },
    Raw { name: "style", decodes: false, is_dropped: true },
    Raw { name: "iframe", decodes: false, is_dropped: true },
    Raw { name: "noembed", decodes: false, is_dropped: true },
    Raw { name: "title", decodes: true, is_dropped: false },
    Raw { name: "textarea", decodes: true, is_dropped: false },
    Raw { name: "xmp", decodes: false, is_dropped: false },
    Raw { name: "listing", decodes: true, is_dropped: false },
    Raw { name: "plaintext", decodes: false, is_dropped: false },
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
        if content.is_empty() || raw.is_dropped {
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
                self.raw = RAW_TEXT_ELEMENTS.iter().find(|raw| raw.name == name).copied();
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

    /// Reads the attributes up to and including the `>`. Also returns whether a `/` is before the `>`.
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
            // Always keep attributes that hide an element. Otherwise a page could put such an attribute behind many
            // others to show hidden text.
            let is_full = attributes.len() >= MAX_ATTRIBUTES && !hidden::HIDING.contains(&name.as_str());
            let is_ignored = is_full || attributes.iter().any(|(existing, _)| *existing == name);
            if !is_ignored && !is_unused(&name) {
                attributes.push((name, value));
            }
        }
        (attributes, closed)
    }

    /// Reads one attribute.
    fn attribute(&mut self) -> Attribute {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        // A `=` at the start is a part of the name.
        let ends_name = |byte: &u8| is_space(*byte) || matches!(byte, b'=' | b'>' | b'/');
        let end = 1 + bytes[1..].iter().position(ends_name).unwrap_or(bytes.len() - 1);
        let end = rest.ceil_char_boundary(end);
        let name = rest[..rest.floor_char_boundary(end.min(MAX_NAME_BYTES))].to_ascii_lowercase();
        let spaces = bytes[end..].iter().take_while(|byte| is_space(**byte)).count();
        if bytes.get(end + spaces) != Some(&b'=') {
            self.position += end;
            return (name, String::new());
        }
        let value_area = end + spaces + 1;
        let begin = value_area + bytes[value_area..].iter().take_while(|byte| is_space(**byte)).count();
        let (value_start, value_end, next_position) = match bytes.get(begin) {
            Some(quote @ (b'"' | b'\'')) => {
                let length = memchr::memchr(*quote, &bytes[begin + 1..]);
                let quoted_end = length.map_or(bytes.len(), |length| begin + 1 + length);
                (begin + 1, quoted_end, (quoted_end + 1).min(bytes.len()))
            }
            _ => {
                let length = bytes[begin..].iter().position(|byte| is_space(*byte) || *byte == b'>');
                let unquoted_end = length.map_or(bytes.len(), |length| begin + length);
                (begin, unquoted_end, unquoted_end)
            }
        };
        self.position += next_position;
        let value = if value_end - value_start > MAX_VALUE_BYTES {
            match name == "style"
                && hidden::style_hides(&decode(&rest[value_start..value_end], InAttribute::Yes))
            {
                true => "display:none".to_owned(),
                false => String::new(),
            }
        } else {
            decode(&rest[value_start..value_end], InAttribute::Yes)
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

/// Whether no code reads an attribute with this name. Such attributes would take most of a page's memory.
fn is_unused(name: &str) -> bool {
    let is_data = name.starts_with("data-") && !matches!(name, "data-lang" | "data-language" | "data-src");
    let labels = name.starts_with("aria-") && name != "aria-hidden";
    is_data || labels || name.starts_with("on")
}

/// Whether a text is the value of an attribute. A reference without `;` before `=` is not a reference there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InAttribute {
    No,
    Yes,
}

/// The end of a raw element's content. If the end tag is missing, the end of the text.
fn end_of_raw(text: &str, name: &str) -> usize {
    if name == "plaintext" {
        return text.len();
    }
    let bytes = text.as_bytes();
    memchr::memmem::find_iter(bytes, b"</")
        .find(|offset| {
            let after_slash = &bytes[offset + 2..];
            after_slash.len() >= name.len()
                && after_slash[..name.len()].eq_ignore_ascii_case(name.as_bytes())
                && after_slash
                    .get(name.len())
                    .is_none_or(|byte| is_space(*byte) || matches!(byte, b'>' | b'/'))
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
    // This includes `<![CDATA[`, which HTML treats as a comment that is not shown.
    memchr::memchr(b'>', bytes).map_or(bytes.len(), |end| end + 1)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}
