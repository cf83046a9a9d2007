//! Removes characters that a reader cannot see, or that control a terminal, from every text of a page.
//!
//! These are control characters, escape sequences, controls of the writing direction, zero-width characters and tag
//! characters. Joiners after a character outside ASCII are kept, because scripts and emoji need them.

use std::{iter::Peekable, str::Chars};

/// Removes the invisible characters from a text. Line breaks become `
/// `, and tabs are kept.
pub(crate) fn visible(text: &str) -> String {
    let mut cleaned = String::with_capacity(text.len());
    let mut characters = text.chars().peekable();
    let mut previous = ' ';
    while let Some(character) = characters.next() {
        match character {
            '\u{1b}' => skip_escape(&mut characters),
            '\r' => {
                if characters.peek() != Some(&'\n') {
                    cleaned.push('\n');
                }
            }
            '\n' | '\t' => cleaned.push(character),
            '\u{c}' | '\u{85}' | '\u{2028}' | '\u{2029}' => cleaned.push('\n'),
            _ if is_invisible(character) => {}
            '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}'
                if previous.is_ascii() || is_joiner(previous) => {}
            _ => cleaned.push(character),
        }
        previous = character;
    }
    cleaned
}

/// Makes a text one line of at most `max_bytes`, without the invisible characters.
pub(crate) fn truncate_to_line(text: &str, max_bytes: usize) -> String {
    let mut line = visible(text).split_whitespace().collect::<Vec<_>>().join(" ");
    line.truncate(line.floor_char_boundary(max_bytes));
    line
}

/// The maximum length of an escape sequence that is skipped as a whole, in characters.
const MAX_SEQUENCE: usize = 256;

/// Skips the rest of an escape sequence: `[…m`, `]…BEL`, or one character.
fn skip_escape(characters: &mut Peekable<Chars<'_>>) {
    match characters.peek() {
        Some('[') => {
            characters.next();
            for _ in 0..MAX_SEQUENCE {
                match characters.peek() {
                    Some(' '..='?') => characters.next(),
                    Some('@'..='~') => {
                        characters.next();
                        return;
                    }
                    _ => return,
                };
            }
        }
        Some(']' | 'P' | 'X' | '^' | '_') => {
            // If the end of the sequence is missing, remove only its first character.
            let mut ahead = characters.clone().take(MAX_SEQUENCE);
            let end = ahead.position(|character| matches!(character, '\u{7}' | '\u{9c}' | '\u{1b}'));
            for _ in 0..=end.unwrap_or(0) {
                characters.next();
            }
            if characters.peek() == Some(&'\\') && end.is_some() {
                characters.next();
            }
        }
        Some(' '..='~') => {
            characters.next();
        }
        _ => {}
    }
}

fn is_joiner(character: char) -> bool {
    matches!(character, '\u{200c}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}')
}

fn is_invisible(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        // Characters for the writing direction.
        | '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}'
        // Characters without width: soft hyphen, fillers, zero-width space, word joiner, invisible operators, byte
        // order mark.
        | '\u{ad}' | '\u{34f}' | '\u{115f}' | '\u{1160}' | '\u{17b4}' | '\u{17b5}' | '\u{180b}'..='\u{180f}'
        | '\u{200b}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{3164}' | '\u{feff}' | '\u{ffa0}'
        | '\u{fff0}'..='\u{fffb}' | '\u{1bca0}'..='\u{1bca3}' | '\u{1d173}'..='\u{1d17a}'
        // Tags, and the supplement of variation selectors. Both can spell whole texts.
        | '\u{e0000}'..='\u{e0fff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: &str) {
        assert_eq!(visible(text), expected);
    }

    #[test]
    fn escape_sequences_are_removed_whole() {
        check("a\u{1b}[31;1mred\u{1b}[0m", "ared");
        check("\u{1b}]0;title\u{7}x\u{1b}]8;;http://a\u{1b}\\y", "xy");
        check("\u{1b}cx\u{1b}", "x");
        check("\u{1b}]no end of it", "no end of it");
        check("\u{9b}31m\u{8}\u{7f}", "31m");
    }

    #[test]
    fn hidden_characters_are_removed() {
        check("a\u{202e}b\u{2066}c\u{200f}d", "abcd");
        check("x\u{e0041}\u{e0042}\u{200b}\u{feff}y\u{fe01}", "xy");
        check("co\u{ad}op", "coop");
    }

    #[test]
    fn joiners_stay_where_scripts_need_them() {
        check("می\u{200c}خواهم", "می\u{200c}خواهم");
        check("👩\u{200d}💻 ❤\u{fe0f}", "👩\u{200d}💻 ❤\u{fe0f}");
        check("a\u{200d}b\u{200d}\u{200d}", "ab");
    }

    #[test]
    fn line_breaks_have_one_form() {
        check("a\r\nb\rc\u{2028}d\te", "a\nb\nc\nd\te");
    }
}
