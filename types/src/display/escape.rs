//! Escapes untrusted text for a terminal. A workspace's overlay or a model's path may contain characters that move the
//! cursor, change the writing direction, or are invisible.

use std::fmt::{self, Write as _};

use icu_properties::{
    CodePointMapData, CodePointSetData,
    props::{BidiClass, DefaultIgnorableCodePoint, GeneralCategory},
};
use unicode_width::UnicodeWidthChar as _;

/// Displays at most 256 characters of a text, with deceptive characters escaped.
#[derive(Debug, Clone, Copy)]
pub struct EscapedText<'a>(pub &'a str);

/// The maximum number of characters that are shown of an untrusted text; a longer text ends with `…`.
const MAX_SHOWN_CHARS: usize = 256;

/// The maximum number of combining marks on one character. More marks would overlap the neighbouring lines.
const MAX_MARKS: usize = 4;

impl fmt::Display for EscapedText<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut escaper = Escaper::default();
        for (index, character) in self.0.chars().enumerate() {
            if index == MAX_SHOWN_CHARS {
                return f.write_char('…');
            }
            escaper.write_escaped(character, f)?;
        }
        Ok(())
    }
}

/// Displays a text with three kinds of characters escaped: those that [`is_deceptive`] accepts, marks without
/// a visible base, and marks after the fourth on one character.
#[must_use]
pub fn escape_for_display(text: &str) -> impl fmt::Display + '_ {
    struct FullyEscaped<'a>(&'a str);

    impl fmt::Display for FullyEscaped<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            let mut escaper = Escaper::default();
            self.0.chars().try_for_each(|character| escaper.write_escaped(character, f))
        }
    }

    FullyEscaped(text)
}

/// Escapes character by character.
#[derive(Default)]
struct Escaper {
    /// The number of marks that the last shown character may still get.
    marks_left: usize,
}

impl Escaper {
    fn write_escaped(&mut self, character: char, f: &mut impl fmt::Write) -> fmt::Result {
        let is_mark = is_mark(character);
        if is_deceptive(character) || (is_mark && self.marks_left == 0) {
            // An escape sequence cannot carry a mark.
            self.marks_left = 0;
            return write!(f, "{}", character.escape_unicode());
        }
        self.marks_left = match character {
            // A mark on a space would have no visible base.
            ' ' => 0,
            // Cannot underflow: if `marks_left` is 0, the mark was escaped above.
            _ if is_mark => self.marks_left - 1,
            _ => MAX_MARKS,
        };
        f.write_char(character)
    }
}

/// Whether a character can deceive a terminal or a reader: control characters, invisible characters, blanks
/// other than the space, enclosing marks, and characters without a defined meaning (private use, unassigned).
#[must_use]
pub fn is_deceptive(character: char) -> bool {
    if character.is_ascii() {
        return character.is_ascii_control();
    }
    let is_deceptive_category = matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::Control
            | GeneralCategory::SpaceSeparator
            | GeneralCategory::EnclosingMark
            | GeneralCategory::PrivateUse
            | GeneralCategory::Surrogate
            | GeneralCategory::Unassigned
    );
    is_deceptive_category || is_invisible(character) || is_blank(character)
}

/// Whether a character is invisible or changes how others are displayed: bidirectional controls, zero-width
/// characters, fillers, variation selectors, line separators, annotations and tags (Unicode Technical
/// Report 36, section 2).
#[must_use]
pub fn is_invisible(character: char) -> bool {
    if character.is_ascii() {
        return false;
    }
    let is_format = matches!(
        CodePointMapData::<GeneralCategory>::new().get(character),
        GeneralCategory::Format | GeneralCategory::LineSeparator | GeneralCategory::ParagraphSeparator
    );
    is_format || CodePointSetData::new::<DefaultIgnorableCodePoint>().contains(character)
}

/// Whether a character belongs to a right-to-left script. Its neighbours on the line may be
/// displayed in another order.
#[must_use]
pub fn is_right_to_left(character: char) -> bool {
    !character.is_ascii()
        && matches!(
            CodePointMapData::<BidiClass>::new().get(character),
            BidiClass::RightToLeft | BidiClass::ArabicLetter | BidiClass::ArabicNumber
        )
}

/// Whether a character is categorized as a letter or symbol but has no visible glyph.
fn is_blank(character: char) -> bool {
    matches!(
        character,
        // BRAILLE PATTERN BLANK, DEVANAGARI CARET, OBJECT REPLACEMENT CHARACTER, KHITAN SMALL SCRIPT FILLER, MUSICAL
        // SYMBOL NULL NOTEHEAD, and the blanks of Egyptian hieroglyphs.
        '\u{2800}' | '\u{a8fa}' | '\u{fffc}' | '\u{16fe4}' | '\u{1d159}' | '\u{13441}' | '\u{13442}'
    )
}

/// Whether a character combines with the previous one, or takes no column.
fn is_mark(character: char) -> bool {
    !character.is_ascii()
        && (character.width().is_none_or(|columns| columns == 0)
            || matches!(
                CodePointMapData::<GeneralCategory>::new().get(character),
                GeneralCategory::NonspacingMark | GeneralCategory::SpacingMark
            ))
}

#[cfg(test)]
mod tests {
    use unicode_width::UnicodeWidthStr as _;

    use super::*;

    fn escape_text(text: &str) -> String {
        escape_for_display(text).to_string()
    }

    #[test]
    fn control_and_bidi_characters_are_escaped() {
        assert_eq!(EscapedText("a/ü 'b'").to_string(), "a/ü 'b'");
        assert_eq!(EscapedText("a\u{1b}[2J\u{202e}b\n").to_string(), "a\\u{1b}[2J\\u{202e}b\\u{a}");
        let text = "rm \u{1b}[2K\u{202e}txt.exe\u{200b}\r\nä";
        assert_eq!(escape_text(text), "rm \\u{1b}[2K\\u{202e}txt.exe\\u{200b}\\u{d}\\u{a}ä");
        assert_eq!(EscapedText(&"x".repeat(300)).to_string(), format!("{}…", "x".repeat(256)));
    }

    #[test]
    fn invisible_and_blank_characters_are_escaped() {
        for character in [
            '\u{a0}',
            '\u{34f}',
            '\u{115f}',
            '\u{1160}',
            '\u{1680}',
            '\u{17b4}',
            '\u{17b5}',
            '\u{180b}',
            '\u{180d}',
            '\u{180e}',
            '\u{2000}',
            '\u{2003}',
            '\u{2028}',
            '\u{205f}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{e000}',
            '\u{fe0f}',
            '\u{ffa0}',
            '\u{fff9}',
            '\u{fffc}',
            '\u{ffff}',
            '\u{1d159}',
            '\u{1d173}',
            '\u{e0041}',
            '\u{e0100}',
            '\u{10ffff}',
            '\u{20dd}',
        ] {
            assert_eq!(escape_text(&format!("a{character}b")), format!("a{}b", character.escape_unicode()));
        }
    }

    /// Checks all of Unicode: each character by itself, and after another character.
    #[test]
    fn every_character_is_seen_or_escaped() {
        for character in (0..=0x10_ffff).filter_map(char::from_u32) {
            let escaped_alone = escape_text(&character.to_string());
            assert!(character == ' ' || escaped_alone.trim() == escaped_alone, "{character:?} is a blank");
            assert!(escaped_alone.width() >= 1, "{character:?} alone is not seen");
            let escaped_after_letter = escape_text(&format!("a{character}"));
            let is_visible_mark =
                escaped_after_letter.width() == 1 && is_mark(character) && !is_deceptive(character);
            assert!(escaped_after_letter.width() > 1 || is_visible_mark, "{character:?} is not seen");
        }
    }

    #[test]
    fn texts_of_all_scripts_stay_readable() {
        for text in [
            "añ€😀 e\u{301}",
            "שלום עולם",
            "مَرْحَبًا",
            "हिन्दी ประเทศไทย 한국어 日本語",
            "\u{1112}\u{1161}\u{11ab}",
            "Tiê\u{301}ng Vi\u{323}\u{302}t",
        ] {
            assert_eq!(escape_text(text), text);
        }
    }

    #[test]
    fn marks_without_a_base_and_stacked_marks_are_escaped() {
        assert_eq!(escape_text("\u{301}a"), "\\u{301}a");
        assert_eq!(escape_text(" \u{301}"), " \\u{301}");
        let stacked_marks = format!("a{}b", "\u{301}".repeat(100));
        let escaped = escape_text(&stacked_marks);
        assert_eq!(escaped.matches('\u{301}').count(), MAX_MARKS);
        assert_eq!(escaped.matches("\\u{301}").count(), 100 - MAX_MARKS);
        // An escaped character cannot carry marks either.
        assert_eq!(escape_text("\u{200b}\u{301}"), "\\u{200b}\\u{301}");
    }

    #[test]
    fn letters_that_are_written_from_right_to_left_are_known() {
        assert!("אبܐ\u{660}".chars().all(is_right_to_left));
        assert!(!"aя日1 ü".chars().any(is_right_to_left));
    }
}
