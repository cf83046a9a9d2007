//! The tokens of an HTML text: tags, texts and nothing else.
//!
//! Each byte is looked at a bounded number of times, and a tag has a bounded number of attributes, so that the
//! time is linear in the length for every input. Comments, doctypes and processing instructions are skipped.

use super::{entities::decode, hidden};

/// The most attributes of a tag; further ones are skipped. Known parsers compare each with all before it.
const MAX_ATTRIBUTES: usize = 64;

/// The longest attribute value that is kept, in bytes. Longer ones are embedded images and state of scripts.
const MAX_VALUE_BYTES: usize = 8 << 10;

/// The longest tag or attribute name, in bytes; longer names are cut.
const MAX_NAME_BYTES: usize = 64;

/// A name in lower case and a decoded value.
pub(super) type Attribute = (String, String);

/// A token.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Token {
    /// A start tag: its name in lower case, its attributes, and whether it ends with `/>`.
    Start { name: String, attributes: Vec<Attribute>, closed: bool },
    /// An end tag: its name in lower case.
    End(String),
    /// Text with its references decoded.
    Text(String),
}

/// Splits a text into tokens.
#[derive(Debug)]
pub(super) struct Tokens<'a> {
    text: &'a str,
    position: usize,
    /// The element whose content is not markup, until its end tag.
    raw: Option<Raw>,
}

#[derive(Clone, Copy, Debug)]
struct Raw {
    name: &'static str,
    /// Whether references are decoded in it.
    decodes: bool,
    /// Whether its content is dropped: scripts and styles.
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

impl<'a> Tokens<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, position: 0, raw: None }
    }

    fn rest(&self) -> &'a str {
        &self.text[self.position..]
    }

    /// The content of a raw element, up to its end tag.
    fn raw_text(&mut self, raw: Raw) -> Option<Token> {
        let rest = self.rest();
        let end = end_of_raw(rest, raw.name);
        self.position += end;
        let content = &rest[..end];
        if content.is_empty() || raw.dropped {
            return None;
        }
        Some(Token::Text(if raw.decodes { decode(content, InAttribute::No) } else { content.to_owned() }))
    }

    /// The token at a `<`; nothing where it is skipped.
    fn markup(&mut self) -> Option<Token> {
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
                Some(Token::End(name))
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
                Some(Token::Start { name, attributes, closed })
            }
            _ => {
                self.position += 1;
                Some(Token::Text("<".to_owned()))
            }
        }
    }

    /// A tag's name.
    fn name(&mut self) -> String {
        let rest = self.rest();
        let end = rest.bytes().position(|byte| is_space(byte) || byte == b'>' || byte == b'/');
        let end = end.unwrap_or(rest.len());
        self.position += end;
        rest[..rest.floor_char_boundary(end.min(MAX_NAME_BYTES))].to_ascii_lowercase()
    }

    /// The attributes up to and with the `>`, and whether a `/` stood before it.
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
            // A page could else put what hides an element behind many others.
            let is_full = attributes.len() >= MAX_ATTRIBUTES && !hidden::HIDING.contains(&name.as_str());
            let known = is_full || attributes.iter().any(|(other, _)| *other == name);
            if !known && !is_unused(&name) {
                attributes.push((name, value));
            }
        }
        (attributes, closed)
    }

    /// One attribute.
    fn attribute(&mut self) -> Attribute {
        let rest = self.rest();
        let bytes = rest.as_bytes();
        // A `=` at the beginning belongs to the name.
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
            match name == "style" && hidden::hides(&decode(&rest[from..to], InAttribute::Yes)) {
                true => "display:none".to_owned(),
                false => String::new(),
            }
        } else {
            decode(&rest[from..to], InAttribute::Yes)
        };
        (name, value)
    }
}

impl Iterator for Tokens<'_> {
    type Item = Token;

    fn next(&mut self) -> Option<Token> {
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
                return Some(Token::Text(decode(&rest[..end], InAttribute::No)));
            }
            if let Some(token) = self.markup() {
                return Some(token);
            }
        }
    }
}

/// Whether no step reads an attribute of this name: most of a page's memory would go to such.
fn is_unused(name: &str) -> bool {
    let data = name.starts_with("data-") && !matches!(name, "data-lang" | "data-language" | "data-src");
    let labels = name.starts_with("aria-") && name != "aria-hidden";
    data || labels || name.starts_with("on")
}

/// Whether a text is an attribute's value, where a reference without `;` before `=` is none.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InAttribute {
    No,
    Yes,
}

/// Where the content of a raw element ends. A missing end tag ends it with the text.
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
    // With `<![CDATA[`, which is a comment in HTML: a reader does not see its text.
    memchr::memchr(b'>', bytes).map_or(bytes.len(), |end| end + 1)
}

fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c')
}
