//! Fonts whose codes are single bytes: Type 1, TrueType, and Type 3, whose glyphs are drawings.

use hayro_syntax::object::{Array, Dict, Name, Object, Stream, dict::keys};

use super::{encoding::Encoding, metrics, names::GlyphNames, programs};
use crate::pdf_text::{
    budget::{Exhausted, PdfBudget},
    decode::decode,
};

/// The character and the width of each of 256 codes.
#[derive(Debug)]
pub(super) struct SimpleFont {
    characters: Vec<Option<Box<str>>>,
    /// Widths, in thousandths of the font size.
    widths: Vec<f64>,
    /// The height of the letters, as a factor of the font size. It is 1, except for drawings.
    pub(super) height: f64,
}

impl SimpleFont {
    pub(super) fn read(
        dict: &Dict<'_>,
        names: &GlyphNames,
        budget: &mut PdfBudget,
    ) -> Result<Self, Exhausted> {
        let descriptor = dict.get::<Dict<'_>>(keys::FONT_DESC).unwrap_or_default();
        let name = dict.get::<Name<'_>>(keys::BASE_FONT);
        let name = super::without_prefix(name.as_ref().map_or("", Name::as_str));
        let kind = dict.get::<Name<'_>>(keys::SUBTYPE);
        let is_true_type = kind.as_deref() == Some(b"TrueType".as_slice());
        let characters = characters(dict, &descriptor, name, is_true_type, names, budget)?;
        let (widths, height) = match kind.as_deref() {
            Some(b"Type3") => drawings(dict),
            _ => (widths(dict, &descriptor, name, &characters), 1.0),
        };
        Ok(Self { characters, widths, height })
    }

    pub(super) fn character(&self, code: u8) -> Option<&str> {
        self.characters[usize::from(code)].as_deref()
    }

    pub(super) fn width(&self, code: u8) -> f64 {
        self.widths[usize::from(code)]
    }
}

/// Returns the characters of all codes: first from the encoding in the program or the named encoding, then
/// from the differences.
fn characters(
    dict: &Dict<'_>,
    descriptor: &Dict<'_>,
    font: &str,
    is_true_type: bool,
    names: &GlyphNames,
    budget: &mut PdfBudget,
) -> Result<Vec<Option<Box<str>>>, Exhausted> {
    let encoding_object = dict.get::<Object<'_>>(keys::ENCODING);
    let (base_encoding, differences) = match encoding_object {
        Some(Object::Name(name)) => (Encoding::from_name(&name), None),
        Some(Object::Dict(encoding)) => {
            let base_name = encoding.get::<Name<'_>>(keys::BASE_ENCODING);
            (
                base_name.and_then(|name| Encoding::from_name(&name)),
                encoding.get::<Array<'_>>(keys::DIFFERENCES),
            )
        }
        _ => (None, None),
    };
    let usual = if is_true_type { Encoding::WinAnsi } else { Encoding::Standard };
    let encoding = base_encoding.unwrap_or_else(|| Encoding::for_font(font, usual));
    let mut characters: Vec<Option<Box<str>>> = (0..=u8::MAX)
        .map(|code| encoding.character(code).map(|character| character.to_string().into()))
        .collect();
    if base_encoding.is_none() {
        for (code, name) in built_in(descriptor, budget)? {
            characters[usize::from(code)] = names.characters(&name).map(Into::into);
        }
    }
    let mut code = 0_usize;
    let differences = differences.into_iter().flat_map(|differences| differences.iter::<Object<'_>>());
    // The list needs at most a number and a name for each of the 256 codes. Ignore further items.
    for item in differences.take(1024) {
        match item {
            Object::Number(number) => code = usize::try_from(number.as_i64()).unwrap_or(usize::MAX),
            Object::Name(name) => {
                if let Some(character) = characters.get_mut(code) {
                    *character = names.characters(name.as_str()).map(Into::into);
                }
                code = code.saturating_add(1);
            }
            _ => {}
        }
    }
    Ok(characters)
}

/// Reads the encoding in the font's program.
fn built_in(descriptor: &Dict<'_>, budget: &mut PdfBudget) -> Result<programs::BuiltInEncoding, Exhausted> {
    if let Some(program) = descriptor.get::<Stream<'_>>(keys::FONT_FILE) {
        return Ok(programs::type1_encoding(&decode(&program, programs::MAX_TYPE1_BYTES, budget)?));
    }
    let compact = descriptor.get::<Stream<'_>>(keys::FONT_FILE3);
    let is_cff = |program: &Stream<'_>| {
        program.dict().get::<Name<'_>>(keys::SUBTYPE).as_deref() == Some(b"Type1C".as_slice())
    };
    match compact.filter(is_cff) {
        Some(program) => Ok(programs::cff_encoding(&decode(&program, programs::MAX_CFF_BYTES, budget)?)),
        None => Ok(Vec::new()),
    }
}

fn widths(dict: &Dict<'_>, descriptor: &Dict<'_>, font: &str, characters: &[Option<Box<str>>]) -> Vec<f64> {
    if let Some(widths) = declared_widths(dict, descriptor.get::<f64>(keys::MISSING_WIDTH).unwrap_or(0.0)) {
        return widths;
    }
    let first_character =
        |text: &Option<Box<str>>| text.as_deref().and_then(|text| text.chars().next()).unwrap_or('0');
    characters.iter().map(|text| metrics::width(font, first_character(text))).collect()
}

/// Returns the widths that a dictionary lists, from its first code on.
fn declared_widths(dict: &Dict<'_>, default_width: f64) -> Option<Vec<f64>> {
    let list = dict.get::<Array<'_>>(keys::WIDTHS)?;
    let first_code = usize::try_from(dict.get::<i32>(keys::FIRST_CHAR).unwrap_or(0)).ok()?;
    let mut widths = vec![default_width; 256];
    for (slot, width) in widths.iter_mut().skip(first_code).zip(list.iter::<f64>()) {
        *slot = width;
    }
    Some(widths)
}

/// The widths of drawings, scaled by the font's own matrix, and the height of the drawings. The height comes from the
/// font's bounding box, or is twice the usual width if there is no box.
fn drawings(dict: &Dict<'_>) -> (Vec<f64>, f64) {
    let [across, _, _, up, ..] =
        dict.get::<[f64; 6]>(keys::FONT_MATRIX).unwrap_or([0.001, 0.0, 0.0, 0.001, 0.0, 0.0]);
    let mut widths = declared_widths(dict, 0.0).unwrap_or_else(|| vec![0.0; 256]);
    widths.iter_mut().for_each(|width| *width *= across.abs() * 1000.0);
    let [_, bottom, _, top] = dict.get::<[f64; 4]>(keys::FONT_BBOX).unwrap_or_default();
    let height = (top - bottom).abs() * up.abs();
    if height > 0.0 {
        return (widths, height);
    }
    let nonzero_widths = widths.iter().filter(|width| **width > 0.0);
    let (count, sum) = nonzero_widths.fold((0.0, 0.0), |(count, sum), width| (count + 1.0, sum + width));
    let height = if count > 0.0 { sum / count / 500.0 } else { 1.0 };
    (widths, height)
}
