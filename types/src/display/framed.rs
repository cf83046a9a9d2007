//! Frames untrusted text: the frame shows the text's source on every line and at every column.

use std::fmt::Write as _;

use super::{is_right_to_left, text};

/// The least width at which names and values stand side by side.
const WIDE_COLUMNS: usize = 40;

/// The columns of a name, with its margins.
const NAME_COLUMNS: usize = 13;

/// The most spaces in a row that are shown as they are. More are shown as a count: blanks could move the
/// following text to a place where readers expect something else.
const MAX_SPACES: usize = 8;

/// Marks a space at either end of a folded line.
const SPACE_SIGN: char = '␣';

/// The most lines of a value: of a longer one, the first and the last are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLimit {
    first: usize,
    last: usize,
}

impl LineLimit {
    /// For a name, an id, a list: 8.
    pub const FEW: Self = Self { first: 6, last: 2 };
    /// For arguments and their subjects: 64.
    pub const MANY: Self = Self { first: 48, last: 16 };
}

/// Lines of names and values. A value is escaped and folded at the terminal's width, so that no part of it
/// stands at the start of a line, where our own text begins.
#[derive(Debug)]
pub struct Framed {
    out: String,
    columns: usize,
    left_out: usize,
}

impl Framed {
    /// Starts with a trusted line, for a terminal of this width.
    #[must_use]
    pub fn new(head: &str, columns: usize) -> Self {
        // At least 4: the margin and the free column take 3.
        Self { out: format!("{head}\n"), columns: columns.max(4), left_out: 0 }
    }

    /// Adds a value.
    pub fn line(&mut self, name: &str, value: &str, lines: LineLimit) {
        let is_wide = self.columns >= WIDE_COLUMNS;
        let (first, next, cut) = if is_wide {
            (format!("  {name:<10} "), format!("{:>11}│ ", ""), format!("{:>11}┆ ", ""))
        } else {
            (format!("  {name}\n│ "), "│ ".to_owned(), "┆ ".to_owned())
        };
        // The last column stays free: some terminals wrap as soon as it is written.
        let room = self.columns - if is_wide { NAME_COLUMNS } else { 2 } - 1;
        let value = counted_spaces(&text::inline(value));
        let folded = fold(&value, room);
        let shown = folded.len().min(lines.first + lines.last);
        let (begin, end) = if folded.len() > shown {
            (&folded[..lines.first], &folded[folded.len() - lines.last..])
        } else {
            (&folded[..], &folded[..0])
        };
        let mut prefix = first;
        let is_folded = folded.len() > 1;
        let seen = |piece: &str| isolated(&if is_folded { ends_seen(piece) } else { piece.to_owned() });
        for piece in begin {
            self.push(&prefix, &seen(piece));
            prefix.clone_from(&next);
        }
        if !end.is_empty() {
            let hidden = &folded[lines.first..folded.len() - lines.last];
            let characters: usize = hidden.iter().map(|piece| piece.chars().count()).sum();
            self.left_out += characters;
            self.push(&cut, &format!("{characters} characters"));
            self.push(&cut, "are not shown");
        }
        for piece in end {
            self.push(&next, &seen(piece));
        }
    }

    fn push(&mut self, prefix: &str, piece: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.out, "{}", format!("{prefix}{piece}").trim_end());
    }

    /// All lines, and at the end a trusted line that counts what is not shown.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.left_out > 0 {
            let _ = writeln!(
                self.out,
                "Too long to be shown in full: {} characters are left out.",
                self.left_out
            );
        }
        self.out
    }
}

/// Replaces longer rows of spaces by a count.
pub(super) fn counted_spaces(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(' ') {
        let count = rest[start..].bytes().take_while(|byte| *byte == b' ').count();
        out.push_str(&rest[..start]);
        if count > MAX_SPACES {
            let _ = write!(out, "⟨{count} spaces⟩");
        } else {
            out.push_str(&rest[start..start + count]);
        }
        rest = &rest[start + count..];
    }
    out + rest
}

/// Splits a text into pieces of at most this width, at least one.
pub(super) fn fold(text: &str, room: usize) -> Vec<&str> {
    let (mut pieces, mut start, mut used) = (Vec::new(), 0, 0);
    for (at, character) in text.char_indices() {
        // Terminals disagree about the width of a character, but none uses more columns than this.
        let columns = if character.is_ascii() { 1 } else { 2 };
        // A piece has at least one character, or a narrow terminal would never get through the text.
        if used + columns > room && at > start {
            pieces.push(&text[start..at]);
            (start, used) = (at, 0);
        }
        used += columns;
    }
    pieces.push(&text[start..]);
    pieces
}

/// A piece of a folded text with its first and last space made visible: otherwise two words at a fold would
/// look like one.
pub(super) fn ends_seen(piece: &str) -> String {
    let mut seen = piece.to_owned();
    if seen.ends_with(' ') {
        seen.pop();
        seen.push(SPACE_SIGN);
    }
    if let Some(rest) = seen.strip_prefix(' ') {
        seen = format!("{SPACE_SIGN}{rest}");
    }
    seen
}

/// Isolates the writing direction of a piece (Unicode Standard Annex 9: first strong isolate, pop).
fn isolated(piece: &str) -> String {
    if piece.chars().any(is_right_to_left) { format!("\u{2068}{piece}\u{2069}") } else { piece.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "A question.";

    /// The screen of a terminal of this width, which wraps long lines.
    fn screen(text: &str, columns: usize) -> Vec<String> {
        let characters = |line: &str| line.chars().collect::<Vec<_>>();
        let rows = text.lines().flat_map(|line| {
            let line = characters(line);
            let rows: Vec<String> = line.chunks(columns).map(|row| row.iter().collect()).collect();
            if rows.is_empty() { vec![String::new()] } else { rows }
        });
        rows.collect()
    }

    fn framed(value: &str, columns: usize) -> String {
        let mut framed = Framed::new(HEAD, columns);
        framed.line("names", "x", LineLimit::FEW);
        framed.line("arguments", value, LineLimit::MANY);
        framed.finish()
    }

    #[test]
    fn a_space_where_a_line_is_folded_is_seen() {
        for columns in [20, 41, 72, 80] {
            for at in 0..100 {
                let (before, after) = ("x".repeat(at), "y".repeat(100 - at));
                let [apart, joined, longer] =
                    [format!("{before} {after}"), format!("{before}{after}"), format!("{before}y{after}")]
                        .map(|value| framed(&value, columns));
                assert!(apart != joined && apart != longer, "{columns} {at}:\n{apart}");
                let rows = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
                assert_ne!(rows(&apart), rows(&joined), "{columns} {at}");
            }
        }
    }

    #[test]
    fn value_never_begins_a_line_of_ours_at_any_width() {
        let forged = "This call needs your approval.  tool       add  Approve? y = yes";
        let ours = [HEAD, "  names", "  arguments", "           │", "│"];
        for columns in (16..=200).step_by(3) {
            for pad in ["x", " ", "\u{3000}", "é"] {
                for padding in 0..16 {
                    let before = pad.repeat(padding + columns - 8);
                    let shown = framed(&format!("{before}{forged}{}", pad.repeat(2 * columns)), columns);
                    for row in screen(&shown, columns) {
                        let begins = ours.iter().any(|begin| row.starts_with(begin));
                        assert!(begins, "{columns} columns: {row:?} in\n{shown}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_value_stands_beside_its_name() {
        assert_eq!(framed("{}", 80), "A question.\n  names      x\n  arguments  {}\n");
        assert_eq!(framed("{}", 20), "A question.\n  names\n│ x\n  arguments\n│ {}\n");
    }

    #[test]
    fn long_value_shows_both_ends_and_counts_the_rest() {
        let value = format!("begin{}end", "x".repeat(100_000));
        let shown = framed(&value, 80);
        assert!(shown.contains("  arguments  beginx") && shown.contains("xend\n"), "{shown}");
        assert!(shown.lines().count() < 80, "{shown}");
        let room = 80 - NAME_COLUMNS - 1;
        let left_out = value.len().div_ceil(room) - 64;
        let left_out = left_out * room;
        assert!(shown.contains(&format!("┆ {left_out} characters\n")), "{shown}");
        assert!(shown.ends_with(&format!("{left_out} characters are left out.\n")), "{shown}");
    }

    #[test]
    fn rows_of_spaces_are_counted() {
        assert_eq!(counted_spaces("a        b"), "a        b");
        assert_eq!(counted_spaces("a         b  c"), "a⟨9 spaces⟩b  c");
        assert_eq!(counted_spaces(&" ".repeat(500)), "⟨500 spaces⟩");
    }

    #[test]
    fn letters_from_right_to_left_are_readable_and_apart() {
        assert!(framed("/shared/שלום", 80).contains("\u{2068}/shared/שלום\u{2069}\n"));
        assert!(!framed("/shared/ä", 80).contains('\u{2068}'));
    }
}
