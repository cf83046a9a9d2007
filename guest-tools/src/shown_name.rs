//! Shows file names in a result, so that each takes one line and none changes how the others look.

use std::borrow::Cow;

/// Returns a name or path in the form for a line of a result. A name with characters that end a line, control
/// a terminal or change the direction of text becomes a quoted string with these characters escaped.
pub(crate) fn shown_name(name: &str) -> Cow<'_, str> {
    if name.chars().any(is_misleading) { Cow::Owned(format!("{name:?}")) } else { Cow::Borrowed(name) }
}

/// Control characters, separators of lines, and the invisible characters of Unicode's bidirectional algorithm (UAX #9).
/// The joiners U+200C and U+200D are parts of ordinary words and emoji.
fn is_misleading(character: char) -> bool {
    character.is_control()
        || matches!(
            character,
            '\u{61c}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}'
                | '\u{feff}'
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn misleading_names_are_quoted() {
        for plain in
            ["notes.txt", " blank ", "caf\u{e9}", "e\u{301}", "\u{1f469}\u{200d}\u{1f4bb}", "a\"b\\c"]
        {
            assert_eq!(shown_name(plain), plain);
        }
        for (name, shown) in [
            ("two\nlines", r#""two\nlines""#),
            ("esc\u{1b}[2J", r#""esc\u{1b}[2J""#),
            ("right\u{202e}left", r#""right\u{202e}left""#),
            ("zero\u{200b}width", r#""zero\u{200b}width""#),
            ("line\u{2028}end", r#""line\u{2028}end""#),
        ] {
            assert_eq!(shown_name(name), shown);
        }
    }
}
