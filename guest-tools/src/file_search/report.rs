//! Collects the found lines in the form for a model, with notes about them.

use std::{borrow::Cow, fmt::Write};

use crate::{
    limits::{MAX_TEXT_BYTES, fitting_length},
    shown_name::shown_name,
};

/// The maximum number of bytes of a line that are shown. Without this limit, a line of a minified file could fill the
/// whole result.
const MAX_SHOWN_LINE_BYTES: usize = 500;

/// The maximum number of these bytes that are shown before the match.
const MAX_SHOWN_BEFORE_BYTES: usize = 100;

/// The maximum number of unreadable files that are named.
const MAX_NAMED_FILES: usize = 5;

/// The results of a search so far, with counts of what could not be searched.
#[derive(Debug)]
pub(super) struct SearchReport {
    text: String,
    max_results: usize,
    /// Whether lines are in groups, which `--` separates.
    is_grouped: bool,
    pub(super) matching_lines: usize,
    /// Whether there are more matching lines than requested.
    has_more: bool,
    pub(super) searched: usize,
    pub(super) binary: usize,
    pub(super) cut_at_binary: usize,
    pub(super) cut_at_long_line: usize,
    unreadable: usize,
    /// The paths of some unreadable files, in the form for the result.
    unreadable_named: Vec<String>,
    pub(super) out_of_time: bool,
}

#[derive(Debug)]
pub(super) struct Group {
    /// The path, in the form for the result.
    path: String,
    /// Whether lines were left out since the last line.
    has_gap: bool,
    is_empty: bool,
}

/// A line of a file, line break included.
#[derive(Clone, Copy)]
pub(super) struct SearchedLine<'a> {
    pub(super) number: u64,
    pub(super) bytes: &'a [u8],
}

impl Group {
    /// Marks that lines are left out here.
    pub(super) fn mark_gap(&mut self) {
        self.has_gap = true;
    }

    pub(super) fn is_empty(&self) -> bool {
        self.is_empty
    }
}

impl SearchReport {
    pub(super) fn new(max_results: usize, grouped: bool) -> Self {
        Self {
            text: String::new(),
            max_results,
            is_grouped: grouped,
            matching_lines: 0,
            has_more: false,
            searched: 0,
            binary: 0,
            cut_at_binary: 0,
            cut_at_long_line: 0,
            unreadable: 0,
            unreadable_named: Vec::new(),
            out_of_time: false,
        }
    }

    /// Starts the lines of a file. A path with control characters becomes a quoted string, so that each line of the
    /// result holds one line of a file.
    pub(super) fn begin(&self, guest: &str) -> Group {
        Group { path: shown_name(guest).into_owned(), has_gap: true, is_empty: true }
    }

    /// Notes a file that could not be read.
    pub(super) fn add_unreadable(&mut self, guest: &str) {
        self.unreadable += 1;
        if self.unreadable_named.len() < MAX_NAMED_FILES && guest.len() <= MAX_SHOWN_LINE_BYTES {
            self.unreadable_named.push(shown_name(guest).into_owned());
        }
    }

    /// Adds a matching line, and returns whether more lines are wanted. `match_offset` gives the offset of the match in
    /// the line.
    pub(super) fn add_match(
        &mut self,
        group: &mut Group,
        line: SearchedLine<'_>,
        match_offset: impl Fn() -> usize,
    ) -> bool {
        if self.is_at_limit() {
            return false;
        }
        self.matching_lines += 1;
        self.add(group, ':', line, match_offset);
        !self.is_full()
    }

    /// Adds a line near a matching line, and returns whether more lines are wanted.
    pub(super) fn add_context(
        &mut self,
        group: &mut Group,
        line: SearchedLine<'_>,
        announces_match: bool,
    ) -> bool {
        if announces_match && self.is_at_limit() {
            return false;
        }
        self.add(group, '-', line, || 0);
        !self.is_full()
    }

    /// Adds a note that a binary file matches.
    pub(super) fn add_binary(&mut self, group: &mut Group, offset: u64) {
        self.matching_lines += 1;
        group.is_empty = false;
        self.write(format_args!("{}: binary file matches (NUL byte at {offset})\n", group.path));
    }

    /// Whether nothing more can be added.
    pub(super) fn is_full(&self) -> bool {
        self.has_more || self.text.len() >= MAX_TEXT_BYTES
    }

    /// The found lines, each with its line break.
    pub(super) fn lines(&self) -> String {
        let end = fitting_length(&self.text);
        let end =
            if end < self.text.len() { self.text[..end].rfind('\n').map_or(0, |at| at + 1) } else { end };
        self.text[..end].to_owned()
    }

    /// Notes about what the lines leave out, one sentence for each. Empty if nothing is left out.
    pub(super) fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        let narrow = "narrow the search with 'path', 'glob' or a longer 'query'";
        if self.has_more {
            let raise = if self.max_results < 10_000 { ", or raise 'max_results'" } else { "" };
            notes.push(format!("more than {} matching lines: {narrow}{raise}", self.max_results));
        } else if fitting_length(&self.text) < self.text.len() || self.text.len() >= MAX_TEXT_BYTES {
            notes.push(format!("more lines than one result holds: {narrow}"));
        }
        if self.out_of_time {
            let searched = count_with_noun(self.searched, "file", "files");
            notes.push(format!("stopped after {searched}, before the time was up: {narrow}"));
        }
        let files = |count| count_with_noun(count, "file", "files");
        if self.cut_at_long_line > 0 {
            notes.push(format!("{} searched only up to a line of over 8 MiB", files(self.cut_at_long_line)));
        }
        if self.cut_at_binary > 0 {
            notes.push(format!("{} searched only up to binary data", files(self.cut_at_binary)));
        }
        if self.unreadable > 0 {
            let ellipsis = if self.unreadable > self.unreadable_named.len() { ", …" } else { "" };
            let paths = self.unreadable_named.join(", ");
            notes.push(format!("{} could not be read: {paths}{ellipsis}", files(self.unreadable)));
        }
        notes
    }

    /// Whether the limit of matching lines is reached. Records that there is another match.
    fn is_at_limit(&mut self) -> bool {
        self.has_more |= self.matching_lines == self.max_results;
        self.has_more
    }

    fn add(
        &mut self,
        group: &mut Group,
        separator: char,
        line: SearchedLine<'_>,
        match_offset: impl Fn() -> usize,
    ) {
        if group.has_gap && self.is_grouped && !self.text.is_empty() {
            self.text.push_str("--\n");
        }
        group.has_gap = false;
        group.is_empty = false;
        let bytes = line.bytes.strip_suffix(b"\n").unwrap_or(line.bytes);
        let bytes = bytes.strip_suffix(b"\r").unwrap_or(bytes);
        let number = line.number;
        self.write(format_args!("{}{separator}{number}{separator}", group.path));
        let line_text =
            if bytes.len() > MAX_SHOWN_LINE_BYTES { line_window(bytes, match_offset()) } else { text(bytes) };
        self.text.push_str(&line_text);
        self.text.push('\n');
    }

    fn write(&mut self, words: std::fmt::Arguments<'_>) {
        // A write to a string cannot fail.
        let _ = self.text.write_fmt(words);
    }
}

/// Formats a count with its noun, as `1 file` or `2 files`.
pub(super) fn count_with_noun(count: usize, singular: &str, plural: &str) -> String {
    format!("{count} {}", if count == 1 { singular } else { plural })
}

fn text(bytes: &[u8]) -> Cow<'_, str> {
    String::from_utf8_lossy(bytes)
}

/// Returns the part of a long line around a place, with marks where the line is cut.
fn line_window(bytes: &[u8], match_offset: usize) -> Cow<'_, str> {
    let latest = bytes.len() - MAX_SHOWN_LINE_BYTES;
    let begin = boundary(bytes, match_offset.saturating_sub(MAX_SHOWN_BEFORE_BYTES).min(latest));
    let end = boundary(bytes, begin + MAX_SHOWN_LINE_BYTES);
    let mut excerpt = String::new();
    if begin > 0 {
        excerpt.push_str(&format!("[{begin} bytes cut] "));
    }
    excerpt.push_str(&text(&bytes[begin..end]));
    if end < bytes.len() {
        excerpt.push_str(&format!(" [{} bytes cut]", bytes.len() - end));
    }
    excerpt.into()
}

/// The last character boundary at or before `offset`. In invalid UTF-8, an offset nearby.
fn boundary(bytes: &[u8], offset: usize) -> usize {
    if offset >= bytes.len() {
        return bytes.len();
    }
    let continuation_bytes =
        (0..4).take_while(|back| offset > *back && bytes[offset - back] & 0b1100_0000 == 0b1000_0000).count();
    offset - continuation_bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &[u8], match_offset: usize, expected_line: &str) {
        let mut report = SearchReport::new(9, false);
        let mut group = report.begin("/shared/a");
        assert!(report.add_match(&mut group, SearchedLine { number: 7, bytes: line }, || match_offset));
        assert_eq!(report.lines(), format!("/shared/a:7:{expected_line}\n"));
    }

    #[test]
    fn a_line_is_shown_whole_or_around_its_match() {
        check(b"text\n", 0, "text");
        check(b"text\r\n", 0, "text");
        check(b"\n", 0, "");
        check(b"a\xff\xfe\n", 0, "a\u{fffd}\u{fffd}");
        check(&[b'x'; 500], 0, &"x".repeat(500));
        check(&[b'x'; 501], 0, &format!("{} [1 bytes cut]", "x".repeat(500)));
        let middle = format!("[900 bytes cut] {} [1600 bytes cut]", "x".repeat(500));
        check(&[b'x'; 3000], 1000, &middle);
        check(&[b'x'; 3000], 2990, &format!("[2500 bytes cut] {}", "x".repeat(500)));
        let accents = format!("[900 bytes cut] {} [1600 bytes cut]", "é".repeat(250));
        check("é".repeat(1500).as_bytes(), 1001, &accents);
    }

    #[test]
    fn a_path_with_a_line_break_stays_on_its_line() {
        let report = SearchReport::new(9, false);
        assert_eq!(report.begin("/shared/a\nb").path, r#""/shared/a\nb""#);
    }

    #[test]
    fn lines_of_control_characters_fit_the_frame() {
        let mut report = SearchReport::new(usize::MAX, false);
        let mut group = report.begin("/shared/a");
        let line = SearchedLine { number: 1, bytes: &[1; 400] };
        while report.add_match(&mut group, line, || 0) {}
        let lines = report.lines();
        assert!(lines.ends_with("\u{1}\n") && lines.len() < 2 << 20, "{}", lines.len());
        assert_eq!(report.notes().len(), 1);
    }
}
