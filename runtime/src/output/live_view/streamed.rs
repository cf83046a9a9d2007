//! Keeps the end of a streamed output, so that the result does not repeat it.

use std::collections::VecDeque;

/// The maximum number of lines that are kept. The notes on a command's end have fewer.
const MAX_KEPT_LINES: usize = 16;

/// The maximum number of characters of a line that are compared.
const MAX_KEPT_CHARS: usize = 256;

/// The kept end of a call's streamed output.
#[derive(Debug, Default)]
pub(super) struct StreamedOutput {
    lines: VecDeque<String>,
    /// Whether the last line is incomplete.
    is_last_line_open: bool,
}

impl StreamedOutput {
    /// Adds a piece, which may begin and end within a line.
    pub(super) fn append(&mut self, text: &str) {
        for piece in text.split_inclusive('\n') {
            if !self.is_last_line_open {
                if self.lines.len() == MAX_KEPT_LINES {
                    self.lines.pop_front();
                }
                self.lines.push_back(String::new());
            }
            if let Some(line) = self.lines.back_mut() {
                let room = MAX_KEPT_CHARS.saturating_sub(line.chars().count());
                line.extend(piece.trim_end_matches('\n').chars().take(room));
            }
            self.is_last_line_open = !piece.ends_with('\n');
        }
    }

    /// Returns the notes at the end of a result, on the output and on the command's end: lines in brackets
    /// that were not streamed.
    pub(super) fn unstreamed_notes<'a>(&self, result: &'a str) -> Vec<&'a str> {
        let mut notes: Vec<&str> =
            result.lines().rev().take_while(|line| line.starts_with('[')).take(MAX_KEPT_LINES).collect();
        notes.reverse();
        // Lines that the stream ended with are the command's own output, even if they look like notes.
        let streamed_count =
            (1..=notes.len()).rev().find(|count| self.ends_with(&notes[..*count])).unwrap_or(0);
        notes.split_off(streamed_count)
    }

    fn ends_with(&self, lines: &[&str]) -> bool {
        let kept_lines = self.lines.iter().rev();
        lines.len() <= self.lines.len()
            && kept_lines.zip(lines.iter().rev()).all(|(kept_line, line)| matches_kept_line(kept_line, line))
    }
}

/// Returns whether a result's line equals a kept line, which may be truncated.
fn matches_kept_line(kept_line: &str, line: &str) -> bool {
    let is_cut = kept_line.chars().count() == MAX_KEPT_CHARS;
    let [kept_line, line] = [kept_line, line].map(|line| line.trim_end_matches('\r'));
    line.strip_prefix(kept_line).is_some_and(|rest| rest.is_empty() || is_cut)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks which lines of a result remain after these pieces.
    #[track_caller]
    fn check(pieces: &[&str], result: &str, expected_notes: &[&str]) {
        let mut streamed = StreamedOutput::default();
        pieces.iter().for_each(|piece| streamed.append(piece));
        assert_eq!(streamed.unstreamed_notes(result), expected_notes, "{pieces:?}");
    }

    #[test]
    fn unstreamed_text_remains_to_be_printed() {
        check(&[], "[exit code: 3]", &["[exit code: 3]"]);
        check(&["one\ntw", "o"], "one\ntwo\n[exit code: 3]", &["[exit code: 3]"]);
        check(&["one\n"], "one\n", &[]);
        let dropped = "one\n[output dropped after the limit]\n[exit code: 1]";
        check(&["one\n"], dropped, &["[output dropped after the limit]", "[exit code: 1]"]);
    }

    #[test]
    fn a_commands_own_lines_in_brackets_are_not_repeated() {
        check(&["[o", "wn]\n"], "[own]\n", &[]);
        check(&["[own]"], "[own]\n[exit code: 3]", &["[exit code: 3]"]);
        check(&["[own]\r", "\n"], "[own]\r\n[exit code: 3]", &["[exit code: 3]"]);
        check(&["[a]\n[b]\n"], "[a]\n[b]\n[killed]", &["[killed]"]);
        // A command may print the same text as a note.
        check(&["[exit code: 3]\n"], "[exit code: 3]\n[exit code: 3]", &["[exit code: 3]"]);
    }

    #[test]
    fn long_outputs_are_recognized_by_their_kept_lines() {
        let line = format!("[{}]", "\u{e4}".repeat(2 * MAX_KEPT_CHARS));
        let many = format!("{line}\n").repeat(3 * MAX_KEPT_LINES);
        let mut streamed = StreamedOutput::default();
        streamed.append(&many);
        assert!(
            streamed.lines.len() == MAX_KEPT_LINES && streamed.lines[0].chars().count() == MAX_KEPT_CHARS
        );
        assert_eq!(streamed.unstreamed_notes(&format!("{line}\n[exit code: 3]")), ["[exit code: 3]"]);
        check(&["[short]\n"], "[short", &["[short"]);
    }
}
