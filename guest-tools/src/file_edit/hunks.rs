//! Shows the lines that an edit changed, in the form of a unified diff.
//!
//! No diff algorithm is needed: the places of the passages are known.

use super::line_breaks;

/// The number of changed places that are shown.
const SHOWN_PLACES: usize = 3;

/// The number of unchanged lines that are shown before and after a change.
const CONTEXT_LINES: usize = 2;

/// The number of removed lines of one place that are shown, and of added ones.
const SHOWN_LINES: usize = 20;

/// The length of a line that is shown, in bytes.
const SHOWN_LINE_BYTES: usize = 200;

/// Shows the first changed places. `places` are the offsets of the replaced passages in the old text, in
/// order; each passage had `old_bytes` and was replaced by `new_bytes`.
pub(super) fn show(old: &str, new: &str, places: &[usize], old_bytes: usize, new_bytes: usize) -> String {
    let mut shown = String::new();
    let mut next = 0;
    for _ in 0..SHOWN_PLACES {
        let Some(first) = places.get(next) else { break };
        let begin = line_start(old, *first);
        let mut end = line_end(old, first + old_bytes);
        let mut last = next;
        // A passage that ends on the line where another begins belongs to the same change.
        while let Some(place) = places.get(last + 1).filter(|place| **place < end) {
            end = line_end(old, place + old_bytes);
            last += 1;
        }
        // Every passage before a place shifts it by the same difference.
        let moved = |at: usize, passages: usize| at + passages * new_bytes - passages * old_bytes;
        let new_begin = moved(begin, next);
        let new_end = line_end(new, moved(places[last], last) + new_bytes);
        let mut before = HunkSide { text: old, begin, end };
        let mut after = HunkSide { text: new, begin: new_begin, end: new_end };
        push_hunk(&mut shown, &mut before, &mut after);
        next = last + 1;
    }
    if next < places.len() {
        shown.push_str("[more changes are not shown]\n");
    }
    shown.pop();
    shown
}

/// Whole lines of one of the texts.
struct HunkSide<'a> {
    text: &'a str,
    begin: usize,
    end: usize,
}

impl<'a> HunkSide<'a> {
    fn lines(&self) -> &'a str {
        &self.text[self.begin..self.end]
    }

    fn begins_line(&self, at: usize) -> bool {
        at == 0 || self.text.as_bytes()[at - 1] == b'\n'
    }
}

fn push_hunk(shown: &mut String, before: &mut HunkSide<'_>, after: &mut HunkSide<'_>) {
    leave_out_same(before, after);
    let head = tail_lines(&before.text[..before.begin]);
    let tail: Vec<&str> = before.text[before.end..].split_inclusive('\n').take(CONTEXT_LINES).collect();
    let place = |side: &HunkSide<'_>| {
        let first = 1 + line_breaks(&side.text[..side.begin]) - head.len();
        let count = side.lines().split_inclusive('\n').count() + head.len() + tail.len();
        format!("{first},{count}")
    };
    shown.push_str(&format!("@@ -{} +{} @@\n", place(before), place(after)));
    head.iter().for_each(|line| push_line(shown, ' ', line));
    push_lines(shown, '-', before.lines());
    push_lines(shown, '+', after.lines());
    tail.iter().for_each(|line| push_line(shown, ' ', line));
}

/// Narrows two sides to the lines in which they differ.
fn leave_out_same(before: &mut HunkSide<'_>, after: &mut HunkSide<'_>) {
    let (old, new) = (before.lines().as_bytes(), after.lines().as_bytes());
    let same = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    // One side may be a prefix of the other.
    let whole = same == old.len().min(new.len())
        && before.begins_line(before.begin + same)
        && after.begins_line(after.begin + same);
    let same = if whole { same } else { line_start(before.lines(), same) };
    before.begin += same;
    after.begin += same;

    let (old, new) = (before.lines().as_bytes(), after.lines().as_bytes());
    let same = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let whole = before.begins_line(before.end - same) && after.begins_line(after.end - same);
    let partial = if whole { 0 } else { same.min(line_end_bytes(&old[old.len() - same..])) };
    before.end -= same - partial;
    after.end -= same - partial;
}

fn push_lines(shown: &mut String, mark: char, lines: &str) {
    let count = lines.split_inclusive('\n').count();
    lines.split_inclusive('\n').take(SHOWN_LINES).for_each(|line| push_line(shown, mark, line));
    if count > SHOWN_LINES {
        shown.push_str(&format!("{mark}[{} more lines]\n", count - SHOWN_LINES));
    }
}

fn push_line(shown: &mut String, mark: char, line: &str) {
    shown.push(mark);
    let (text, ended) = match line.strip_suffix('\n') {
        Some(text) => (text, true),
        None => (line, false),
    };
    let end = text.floor_char_boundary(SHOWN_LINE_BYTES);
    shown.push_str(&text[..end]);
    if end < text.len() {
        shown.push_str(&format!(" [{} more bytes]", text.len() - end));
    }
    shown.push_str(if ended { "\n" } else { "\n\\ No newline at end of file\n" });
}

/// The last lines of a text that ends at a line's start.
fn tail_lines(text: &str) -> Vec<&str> {
    let mut lines = Vec::new();
    let mut end = text.len();
    while end > 0 && lines.len() < CONTEXT_LINES {
        let begin = line_start(text, end - 1);
        lines.push(&text[begin..end]);
        end = begin;
    }
    lines.reverse();
    lines
}

/// The offset at which the line of a place begins.
fn line_start(text: &str, at: usize) -> usize {
    text.as_bytes()[..at].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

/// The offset at which the line of a place ends, line break included.
fn line_end(text: &str, at: usize) -> usize {
    at + line_end_bytes(&text.as_bytes()[at..])
}

/// The length of the first line, line break included.
fn line_end_bytes(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1)
}
