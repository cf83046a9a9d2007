//! Text from a stranger, made fit for a terminal: a workspace's overlay and a model's path may hold
//! characters that move the cursor or turn the writing direction.

use std::fmt;

/// Shows a text with control and bidirectional characters escaped, and at most [`MAX_SHOWN_CHARS`] of it.
pub(crate) struct Shown<'a>(pub(crate) &'a str);

/// How much of a stranger's text an error repeats.
const MAX_SHOWN_CHARS: usize = 256;

impl fmt::Display for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        use fmt::Write as _;
        for (index, character) in self.0.chars().enumerate() {
            if index == MAX_SHOWN_CHARS {
                return f.write_char('…');
            }
            if is_deceptive(character) {
                write!(f, "{}", character.escape_unicode())?;
            } else {
                f.write_char(character)?;
            }
        }
        Ok(())
    }
}

/// Shows a text as it is, but for the characters that [`is_deceptive`] names.
#[must_use]
pub fn escape_for_display(text: &str) -> impl fmt::Display + '_ {
    struct Escaped<'a>(&'a str);

    impl fmt::Display for Escaped<'_> {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            use fmt::Write as _;
            self.0.chars().try_for_each(|character| match is_deceptive(character) {
                true => write!(f, "{}", character.escape_unicode()),
                false => f.write_char(character),
            })
        }
    }

    Escaped(text)
}

/// Whether a terminal or a reader's eye would be deceived by a character: control characters, and those
/// that are not seen.
#[must_use]
pub fn is_deceptive(character: char) -> bool {
    character.is_control() || is_invisible(character)
}

/// Characters that change how others are shown, or that are not shown at all: bidirectional controls,
/// zero-width characters, variation selectors, line separators, annotations and tags (Unicode Technical
/// Report 36, section 2).
pub(crate) fn is_invisible(character: char) -> bool {
    matches!(
        character,
        '\u{ad}'
            | '\u{61c}'
            | '\u{180e}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{fff9}'..='\u{fffb}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_a_cursor_or_turns_the_writing_is_escaped() {
        assert_eq!(Shown("a/ü 'b'").to_string(), "a/ü 'b'");
        assert_eq!(Shown("a\u{1b}[2J\u{202e}b\n").to_string(), "a\\u{1b}[2J\\u{202e}b\\u{a}");
        let text = "rm \u{1b}[2K\u{202e}txt.exe\u{200b}\r\nä";
        let shown = "rm \\u{1b}[2K\\u{202e}txt.exe\\u{200b}\\u{d}\\u{a}ä";
        assert_eq!(escape_for_display(text).to_string(), shown);
        assert_eq!(Shown(&"x".repeat(300)).to_string(), format!("{}…", "x".repeat(256)));
    }
}
