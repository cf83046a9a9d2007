//! Frames untrusted text: every line, at every width, shows where the text comes from.

use std::fmt::Write as _;

use super::{is_right_to_left, text};

/// The minimum width, in columns, at which names and values are side by side.
const WIDE_COLUMNS: usize = 40;

/// The width of a name, in columns, with its margins.
const NAME_COLUMNS: usize = 13;

/// The maximum number of consecutive spaces that are shown unchanged. A longer run is shown as a count,
/// because it could push the following text to where readers expect trusted text.
const MAX_SPACES: usize = 8;

/// Marks a space at either end of a folded line.
const SPACE_SIGN: char = '␣';

/// The maximum number of lines of a value. For a longer value, its first and its last lines are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LineLimit {
    first: usize,
    last: usize,
}

impl LineLimit {
    /// For a name, an id or a list: 8 lines.
    pub const FEW: Self = Self { first: 6, last: 2 };
    /// For arguments and their subjects: 64 lines.
    pub const MANY: Self = Self { first: 48, last: 16 };
}

/// Lines of names and values. A value is escaped and folded at the terminal's width, so no part of it appears
/// at the start of a line, where trusted text starts.
#[derive(Debug)]
pub struct Framed {
    output: String,
    columns: usize,
    omitted_characters: usize,
}

impl Framed {
    /// Starts with a trusted line, for a terminal of this width.
    #[must_use]
    pub fn new(head: &str, columns: usize) -> Self {
        // The width is at least 4 columns, because the margin and the free column take 3.
        Self { output: format!("{head}\n"), columns: columns.max(4), omitted_characters: 0 }
    }

    /// Adds a value.
    pub fn push_value(&mut self, name: &str, value: &str, lines: LineLimit) {
        let is_wide = self.columns >= WIDE_COLUMNS;
        let (first_prefix, next_prefix, cut_prefix) = if is_wide {
            (format!("  {name:<10} "), format!("{:>11}│ ", ""), format!("{:>11}┆ ", ""))
        } else {
            (format!("  {name}\n│ "), "│ ".to_owned(), "┆ ".to_owned())
        };
        // Leave the last column free, because some terminals wrap as soon as it is written.
        let columns_left = self.columns - if is_wide { NAME_COLUMNS } else { 2 } - 1;
        let value = shorten_spaces(&text::inline(value));
        let pieces = fold(&value, columns_left);
        let row_count = pieces.len().min(lines.first + lines.last);
        let (first_pieces, last_pieces) = if pieces.len() > row_count {
            (&pieces[..lines.first], &pieces[pieces.len() - lines.last..])
        } else {
            (&pieces[..], &pieces[..0])
        };
        let mut prefix = first_prefix;
        let is_folded = pieces.len() > 1;
        let displayed = |piece: &str| {
            isolate_direction(&if is_folded { mark_end_spaces(piece) } else { piece.to_owned() })
        };
        for piece in first_pieces {
            self.push(&prefix, &displayed(piece));
            prefix.clone_from(&next_prefix);
        }
        if !last_pieces.is_empty() {
            let hidden_pieces = &pieces[lines.first..pieces.len() - lines.last];
            let characters: usize = hidden_pieces.iter().map(|piece| piece.chars().count()).sum();
            self.omitted_characters += characters;
            self.push(&cut_prefix, &format!("{characters} characters"));
            self.push(&cut_prefix, "are not shown");
        }
        for piece in last_pieces {
            self.push(&next_prefix, &displayed(piece));
        }
    }

    fn push(&mut self, prefix: &str, piece: &str) {
        // Writing to a string cannot fail.
        let _ = writeln!(self.output, "{}", format!("{prefix}{piece}").trim_end());
    }

    /// Returns all lines, followed by a trusted line that counts the omitted characters, if any.
    #[must_use]
    pub fn finish(mut self) -> String {
        if self.omitted_characters > 0 {
            let _ = writeln!(
                self.output,
                "Too long to be shown in full: {} characters are left out.",
                self.omitted_characters
            );
        }
        self.output
    }
}

/// Replaces each run of more than [`MAX_SPACES`] spaces by a count.
pub(super) fn shorten_spaces(text: &str) -> String {
    let mut shortened = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(start) = rest.find(' ') {
        let count = rest[start..].bytes().take_while(|byte| *byte == b' ').count();
        shortened.push_str(&rest[..start]);
        if count > MAX_SPACES {
            let _ = write!(shortened, "⟨{count} spaces⟩");
        } else {
            shortened.push_str(&rest[start..start + count]);
        }
        rest = &rest[start + count..];
    }
    shortened + rest
}

/// Splits a text into pieces of at most `max_columns` columns. There is at least one piece.
pub(super) fn fold(text: &str, max_columns: usize) -> Vec<&str> {
    let (mut pieces, mut start, mut used_columns) = (Vec::new(), 0, 0);
    for (offset, character) in text.char_indices() {
        // Terminals disagree about the width of a character, but none uses more columns
        // than are counted here.
        let columns = if character.is_ascii() { 1 } else { 2 };
        // A piece has at least one character, so that the loop advances even on a very narrow terminal.
        if used_columns + columns > max_columns && offset > start {
            pieces.push(&text[start..offset]);
            (start, used_columns) = (offset, 0);
        }
        used_columns += columns;
    }
    pieces.push(&text[start..]);
    pieces
}

/// Makes the first and the last space of a folded piece visible. Otherwise readers would join
/// two words at a fold.
pub(super) fn mark_end_spaces(piece: &str) -> String {
    let mut marked = piece.to_owned();
    if marked.ends_with(' ') {
        marked.pop();
        marked.push(SPACE_SIGN);
    }
    if let Some(rest) = marked.strip_prefix(' ') {
        marked = format!("{SPACE_SIGN}{rest}");
    }
    marked
}

/// Isolates the writing direction of a piece (Unicode Standard Annex 9: first strong isolate, pop).
fn isolate_direction(piece: &str) -> String {
    if piece.chars().any(is_right_to_left) { format!("\u{2068}{piece}\u{2069}") } else { piece.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &str = "A question.";

    /// Simulates the screen of a terminal of this width, which wraps long lines.
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
        framed.push_value("names", "x", LineLimit::FEW);
        framed.push_value("arguments", value, LineLimit::MANY);
        framed.finish()
    }

    #[test]
    fn a_space_where_a_line_is_folded_is_seen() {
        for columns in [20, 41, 72, 80] {
            for split in 0..100 {
                let (left, right) = ("x".repeat(split), "y".repeat(100 - split));
                let [with_space, without_space, with_letter] =
                    [format!("{left} {right}"), format!("{left}{right}"), format!("{left}y{right}")]
                        .map(|value| framed(&value, columns));
                assert!(
                    with_space != without_space && with_space != with_letter,
                    "{columns} {split}:\n{with_space}"
                );
                let rows = |text: &str| text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n");
                assert_ne!(rows(&with_space), rows(&without_space), "{columns} {split}");
            }
        }
    }

    #[test]
    fn a_value_never_forges_a_line_of_the_frame() {
        let forged = "This call needs your approval.  tool       add  Approve? y = yes";
        let frame_line_starts = [HEAD, "  names", "  arguments", "           │", "│"];
        for columns in (16..=200).step_by(3) {
            for pad in ["x", " ", "\u{3000}", "é"] {
                for padding in 0..16 {
                    let leading = pad.repeat(padding + columns - 8);
                    let frame = framed(&format!("{leading}{forged}{}", pad.repeat(2 * columns)), columns);
                    for row in screen(&frame, columns) {
                        let is_frame_line = frame_line_starts.iter().any(|begin| row.starts_with(begin));
                        assert!(is_frame_line, "{columns} columns: {row:?} in\n{frame}");
                    }
                }
            }
        }
    }

    #[test]
    fn a_short_value_is_beside_its_name() {
        assert_eq!(framed("{}", 80), "A question.\n  names      x\n  arguments  {}\n");
        assert_eq!(framed("{}", 20), "A question.\n  names\n│ x\n  arguments\n│ {}\n");
    }

    #[test]
    fn long_value_shows_both_ends_and_counts_the_rest() {
        let value = format!("begin{}end", "x".repeat(100_000));
        let frame = framed(&value, 80);
        assert!(frame.contains("  arguments  beginx") && frame.contains("xend\n"), "{frame}");
        assert!(frame.lines().count() < 80, "{frame}");
        let line_columns = 80 - NAME_COLUMNS - 1;
        let hidden_rows = value.len().div_ceil(line_columns) - 64;
        let hidden_characters = hidden_rows * line_columns;
        assert!(frame.contains(&format!("┆ {hidden_characters} characters\n")), "{frame}");
        assert!(frame.ends_with(&format!("{hidden_characters} characters are left out.\n")), "{frame}");
    }

    #[test]
    fn rows_of_spaces_are_counted() {
        assert_eq!(shorten_spaces("a        b"), "a        b");
        assert_eq!(shorten_spaces("a         b  c"), "a⟨9 spaces⟩b  c");
        assert_eq!(shorten_spaces(&" ".repeat(500)), "⟨500 spaces⟩");
    }

    #[test]
    fn letters_from_right_to_left_are_readable_and_apart() {
        assert!(framed("/shared/שלום", 80).contains("\u{2068}/shared/שלום\u{2069}\n"));
        assert!(!framed("/shared/ä", 80).contains('\u{2068}'));
    }
}
