//! Fonts, as far as the text needs them: the characters and the width of each code.
//!
//! The characters come first from a table `ToUnicode` in the file, and otherwise from the font's encoding. No outline
//! is read, and no font outside the file is needed.

mod charset;
mod composite;
mod encoding;
mod metrics;
mod names;
mod programs;
mod simple;

use std::{borrow::Cow, cell::OnceCell, collections::HashMap, rc::Rc};

use hayro_cmap::{BfString, CMap};
use hayro_syntax::{
    object::{Dict, Name, Object, ObjectIdentifier, Stream, dict::keys},
    page::Resources,
};

use self::{composite::CompositeFont, names::GlyphNames, simple::SimpleFont};
use super::{
    budget::{Exhausted, FONT_OPERATIONS, MAX_TABLE_BYTES, PdfBudget, TABLE_BYTES_PER_OPERATION},
    decode::decode,
};

/// A font of a document.
#[derive(Debug)]
pub(super) struct Font {
    kind: Kind,
    to_unicode: Option<ToUnicode>,
}

#[derive(Debug)]
enum Kind {
    Simple(SimpleFont),
    Composite(CompositeFont),
}

/// The table that gives the characters of codes.
#[derive(Debug)]
enum ToUnicode {
    Table(Box<CMap>),
    /// The codes are characters themselves.
    Identity,
}

/// The decoded form of one code of a string.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct DecodedCode<'f> {
    /// The characters. `None` if the file does not give them.
    pub(super) characters: Option<Cow<'f, str>>,
    /// The width, in thousandths of the font size.
    pub(super) width: f64,
    /// Whether the word spacing applies to this code.
    pub(super) is_space: bool,
    /// The length of the code, in bytes.
    pub(super) length: usize,
}

impl Font {
    fn read(dict: &Dict<'_>, names: &GlyphNames, budget: &mut PdfBudget) -> Result<Self, Exhausted> {
        budget.operations(FONT_OPERATIONS)?;
        let to_unicode = match dict.get::<Object<'_>>(keys::TO_UNICODE) {
            Some(Object::Stream(table)) => read_table(&table, budget)?.map(ToUnicode::Table),
            Some(Object::Name(name)) => name.as_str().starts_with("Identity").then_some(ToUnicode::Identity),
            _ => None,
        };
        let kind = match dict.get::<Name<'_>>(keys::SUBTYPE).as_deref() {
            Some(b"Type0") => Kind::Composite(CompositeFont::read(dict, budget)?),
            _ => Kind::Simple(SimpleFont::read(dict, names, budget)?),
        };
        Ok(Self { kind, to_unicode })
    }

    pub(super) fn is_vertical(&self) -> bool {
        matches!(&self.kind, Kind::Composite(font) if font.is_vertical)
    }

    /// The height of the letters, as a factor of the font size.
    pub(super) fn height(&self) -> f64 {
        match &self.kind {
            Kind::Simple(font) => font.height,
            Kind::Composite(_) => 1.0,
        }
    }

    /// The decoded form of the first code of a string. The string must not be empty.
    pub(super) fn decode_first_code(&self, bytes: &[u8]) -> DecodedCode<'_> {
        match &self.kind {
            Kind::Simple(font) => {
                let code = bytes[0];
                let from_table = self.characters_from_to_unicode(u32::from(code));
                let characters =
                    from_table.map(Cow::Owned).or_else(|| font.character(code).map(Cow::Borrowed));
                DecodedCode { characters, width: font.width(code), is_space: code == b' ', length: 1 }
            }
            Kind::Composite(font) => {
                let (code, length) = font.first_code(bytes);
                let characters =
                    self.characters_from_to_unicode(code).or_else(|| font.characters(&bytes[..length]));
                let is_space = length == 1 && code == u32::from(b' ');
                let width = font.width(code, length);
                DecodedCode { characters: characters.map(Cow::Owned), width, is_space, length }
            }
        }
    }

    /// Returns the characters that the font's table gives for a code.
    fn characters_from_to_unicode(&self, code: u32) -> Option<String> {
        match self.to_unicode.as_ref()? {
            ToUnicode::Identity => {
                char::from_u32(code).filter(|character| *character != '\0').map(String::from)
            }
            ToUnicode::Table(table) => match table.lookup_bf_string(code)? {
                // A table that maps a code to NUL gives it no character.
                BfString::Char('\0') => None,
                BfString::Char(character) => Some(character.into()),
                BfString::String(text) => Some(text),
            },
        }
    }
}

/// The fonts of a document that were already read.
#[derive(Debug, Default)]
pub(super) struct Fonts {
    fonts: HashMap<ObjectIdentifier, Rc<Font>>,
    names: OnceCell<GlyphNames>,
}

impl Fonts {
    /// The font with this name in the resources.
    pub(super) fn get(
        &mut self,
        name: &Name<'_>,
        resources: &Resources<'_>,
        budget: &mut PdfBudget,
    ) -> Result<Option<Rc<Font>>, Exhausted> {
        // A font that is defined in the resources themselves has no object number, so read it each time.
        let id = resources.fonts.get_ref(name).map(ObjectIdentifier::from);
        if let Some(font) = id.and_then(|id| self.fonts.get(&id)) {
            return Ok(Some(Rc::clone(font)));
        }
        let Some(dict) = resources.get_font(name) else { return Ok(None) };
        let font = Rc::new(Font::read(&dict, self.names.get_or_init(GlyphNames::new), budget)?);
        if let Some(id) = id {
            self.fonts.insert(id, Rc::clone(&font));
        }
        Ok(Some(font))
    }
}

/// Reads a table of characters or codes. The file can refer to tables outside itself, which are left out.
fn read_table(stream: &Stream<'_>, budget: &mut PdfBudget) -> Result<Option<Box<CMap>>, Exhausted> {
    let text = decode(stream, MAX_TABLE_BYTES, budget)?;
    budget.operations(text.len() / TABLE_BYTES_PER_OPERATION)?;
    Ok(CMap::parse(&text, |_| None).map(Box::new))
}

/// The name of a font without the prefix of a subset such as `ABCDEF+`.
fn without_prefix(name: &str) -> &str {
    name.split_once('+').filter(|(prefix, _)| prefix.len() == 6).map_or(name, |(_, name)| name)
}
