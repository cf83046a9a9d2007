//! Fonts whose codes have several bytes: the fonts of Asian scripts, and nearly all fonts that programs embed today.

use std::collections::HashMap;

use hayro_cmap::{CMap, WritingMode};
use hayro_syntax::object::{Array, Dict, Object, dict::keys};

use super::charset::Charset;
use crate::pdf_text::budget::{Exhausted, PdfBudget};

#[derive(Debug)]
pub(super) struct CompositeFont {
    codes: Codes,
    pub(super) is_vertical: bool,
    widths: HashMap<u32, f64>,
    default_width: f64,
}

/// How a string is split into codes.
#[derive(Debug)]
enum Codes {
    /// Two bytes each, which are the number of a glyph.
    Identity,
    Charset(Charset),
    /// A table in the file.
    Table(Box<CMap>),
}

/// The maximum number of widths that are kept: 65,536. A range of a few bytes can name four billion codes.
const MAX_WIDTHS: usize = 1 << 16;

impl CompositeFont {
    pub(super) fn read(dict: &Dict<'_>, budget: &mut PdfBudget) -> Result<Self, Exhausted> {
        let descendants = dict.get::<Array<'_>>(keys::DESCENDANT_FONTS);
        let descendant = descendants.and_then(|fonts| fonts.iter::<Dict<'_>>().next()).unwrap_or_default();
        let (codes, is_vertical) = codes(dict, budget)?;
        let widths = descendant.get::<Array<'_>>(keys::W).map(|list| widths(&list)).unwrap_or_default();
        let default_width = descendant.get::<f64>(keys::DW).unwrap_or(1000.0);
        Ok(Self { codes, is_vertical, widths, default_width })
    }

    /// The first code of a string, and its length in bytes.
    pub(super) fn first_code(&self, bytes: &[u8]) -> (u32, usize) {
        let number =
            |length: usize| bytes[..length].iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
        let length = match &self.codes {
            Codes::Identity => 2.min(bytes.len()),
            Codes::Charset(charset) => charset.length(bytes),
            Codes::Table(table) => (1_u8..=4)
                .take(bytes.len())
                .find(|length| table.lookup_cid_code(number(usize::from(*length)), *length).is_some())
                .map_or(1, usize::from),
        };
        (number(length), length)
    }

    /// Returns the characters of a code, if the encoding itself gives them.
    pub(super) fn characters(&self, code: &[u8]) -> Option<String> {
        match &self.codes {
            Codes::Charset(charset) => charset.characters(code),
            Codes::Identity | Codes::Table(_) => None,
        }
    }

    /// The width of a code, in thousandths of the font size.
    pub(super) fn width(&self, code: u32, length: usize) -> f64 {
        let glyph = match &self.codes {
            Codes::Identity => Some(code),
            Codes::Table(table) => {
                u8::try_from(length).ok().and_then(|code_length| table.lookup_cid_code(code, code_length))
            }
            // The glyph's number would need the tables of the charset. A code of one byte is half as wide as a code of
            // two.
            Codes::Charset(charset) if length == 1 && *charset != Charset::Utf16 => return 500.0,
            Codes::Charset(Charset::Utf16) if code < 0x80 => return 500.0,
            Codes::Charset(_) => None,
        };
        glyph.and_then(|glyph| self.widths.get(&glyph)).copied().unwrap_or(self.default_width)
    }
}

fn codes(dict: &Dict<'_>, budget: &mut PdfBudget) -> Result<(Codes, bool), Exhausted> {
    match dict.get::<Object<'_>>(keys::ENCODING) {
        Some(Object::Name(name)) => {
            let charset = Charset::from_name(name.as_str()).map(Codes::Charset);
            let is_vertical = name.as_str() == "V" || name.as_str().ends_with("-V");
            Ok((charset.unwrap_or(Codes::Identity), is_vertical))
        }
        Some(Object::Stream(stream)) => {
            let table = super::read_table(&stream, budget)?;
            let is_vertical = table
                .as_ref()
                .is_some_and(|table| table.metadata().writing_mode == Some(WritingMode::Vertical));
            Ok((table.map_or(Codes::Identity, Codes::Table), is_vertical))
        }
        _ => Ok((Codes::Identity, false)),
    }
}

/// Reads the list of widths, which holds `first [w w …]` and `first last w` in any order.
fn widths(list: &Array<'_>) -> HashMap<u32, f64> {
    let mut widths = HashMap::new();
    let mut numbers: Vec<f64> = Vec::new();
    for item in list.iter::<Object<'_>>() {
        match item {
            Object::Number(number) => numbers.push(number.as_f64()),
            Object::Array(run) => {
                let first = numbers.pop().map(glyph);
                let run = run.iter::<f64>().take(MAX_WIDTHS.saturating_sub(widths.len()));
                if let Some(first) = first {
                    widths.extend((first..).zip(run));
                }
                numbers.clear();
            }
            _ => numbers.clear(),
        }
        if let [first, last, width] = numbers[..] {
            let max_widths = MAX_WIDTHS.saturating_sub(widths.len());
            widths.extend((glyph(first)..=glyph(last)).take(max_widths).map(|glyph| (glyph, width)));
            numbers.clear();
        }
        if widths.len() >= MAX_WIDTHS {
            break;
        }
    }
    widths
}

/// The number of a glyph. A value outside the range becomes the last number.
fn glyph(number: f64) -> u32 {
    if (0.0..=65535.0).contains(&number) {
        // The number fits in 16 bits.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within the range above")]
        let number = number as u32;
        return number;
    }
    u32::from(u16::MAX)
}
