//! Shows the lines that an edit changed, in the form of a unified diff.
//!
//! No diff algorithm is needed, because the offsets of the passages are known.

use super::line_breaks;

/// The maximum number of changed places that are shown.
const MAX_SHOWN_PLACES: usize = 3;

/// The number of unchanged lines that are shown before and after a change.
const CONTEXT_LINES: usize = 2;

/// The maximum number of removed lines that are shown for one place. The same limit applies to added lines.
const MAX_SHOWN_LINES: usize = 20;

/// The maximum number of bytes of a line that are shown.
const MAX_SHOWN_LINE_BYTES: usize = 200;

/// Shows the first changed places. `offsets` holds the offsets of the replaced passages in the old text, in order. Each
/// passage had `old_bytes`, and its replacement has `new_bytes`.
pub(super) fn format_hunks(
    old: &str,
    new: &str,
    offsets: &[usize],
    old_bytes: usize,
    new_bytes: usize,
) -> String {
    let mut diff = String::new();
    let mut next_index = 0;
    for _ in 0..MAX_SHOWN_PLACES {
        let Some(first_offset) = offsets.get(next_index) else { break };
        let old_begin = line_start(old, *first_offset);
        let mut old_end = line_end(old, first_offset + old_bytes);
        let mut last_index = next_index;
        // If a passage ends on the line where the next passage starts, both belong to the same change.
        while let Some(offset) = offsets.get(last_index + 1).filter(|offset| **offset < old_end) {
            old_end = line_end(old, offset + old_bytes);
            last_index += 1;
        }
        // Every earlier passage shifts the offset by the same difference.
        let shifted = |offset: usize, passages: usize| offset + passages * new_bytes - passages * old_bytes;
        let new_begin = shifted(old_begin, next_index);
        let new_end = line_end(new, shifted(offsets[last_index], last_index) + new_bytes);
        let mut old_side = HunkSide { text: old, begin: old_begin, end: old_end };
        let mut new_side = HunkSide { text: new, begin: new_begin, end: new_end };
        push_hunk(&mut diff, &mut old_side, &mut new_side);
        next_index = last_index + 1;
    }
    if next_index < offsets.len() {
        diff.push_str("[more changes are not shown]\n");
    }
    diff.pop();
    diff
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

    fn begins_line(&self, offset: usize) -> bool {
        offset == 0 || self.text.as_bytes()[offset - 1] == b'\n'
    }
}

fn push_hunk(diff: &mut String, old_side: &mut HunkSide<'_>, new_side: &mut HunkSide<'_>) {
    trim_common_lines(old_side, new_side);
    let lines_before = tail_lines(&old_side.text[..old_side.begin]);
    let lines_after: Vec<&str> =
        old_side.text[old_side.end..].split_inclusive('\n').take(CONTEXT_LINES).collect();
    let line_range = |side: &HunkSide<'_>| {
        let first = 1 + line_breaks(&side.text[..side.begin]) - lines_before.len();
        let count = side.lines().split_inclusive('\n').count() + lines_before.len() + lines_after.len();
        format!("{first},{count}")
    };
    diff.push_str(&format!("@@ -{} +{} @@\n", line_range(old_side), line_range(new_side)));
    lines_before.iter().for_each(|line| push_line(diff, ' ', line));
    push_lines(diff, '-', old_side.lines());
    push_lines(diff, '+', new_side.lines());
    lines_after.iter().for_each(|line| push_line(diff, ' ', line));
}

/// Narrows two sides to the lines in which they differ.
fn trim_common_lines(old_side: &mut HunkSide<'_>, new_side: &mut HunkSide<'_>) {
    let (old, new) = (old_side.lines().as_bytes(), new_side.lines().as_bytes());
    let common_prefix = old.iter().zip(new).take_while(|(a, b)| a == b).count();
    // One side may be a prefix of the other side.
    let is_at_line_start = common_prefix == old.len().min(new.len())
        && old_side.begins_line(old_side.begin + common_prefix)
        && new_side.begins_line(new_side.begin + common_prefix);
    let skipped = if is_at_line_start { common_prefix } else { line_start(old_side.lines(), common_prefix) };
    old_side.begin += skipped;
    new_side.begin += skipped;

    let (old, new) = (old_side.lines().as_bytes(), new_side.lines().as_bytes());
    let common_suffix = old.iter().rev().zip(new.iter().rev()).take_while(|(a, b)| a == b).count();
    let is_at_line_start = old_side.begins_line(old_side.end - common_suffix)
        && new_side.begins_line(new_side.end - common_suffix);
    let partial = if is_at_line_start {
        0
    } else {
        common_suffix.min(line_end_bytes(&old[old.len() - common_suffix..]))
    };
    old_side.end -= common_suffix - partial;
    new_side.end -= common_suffix - partial;
}

fn push_lines(diff: &mut String, mark: char, lines: &str) {
    let count = lines.split_inclusive('\n').count();
    lines.split_inclusive('\n').take(MAX_SHOWN_LINES).for_each(|line| push_line(diff, mark, line));
    if count > MAX_SHOWN_LINES {
        diff.push_str(&format!("{mark}[{} more lines]\n", count - MAX_SHOWN_LINES));
    }
}

fn push_line(diff: &mut String, mark: char, line: &str) {
    diff.push(mark);
    let (text, has_line_break) = match line.strip_suffix('\n') {
        Some(text) => (text, true),
        None => (line, false),
    };
    let end = text.floor_char_boundary(MAX_SHOWN_LINE_BYTES);
    diff.push_str(&text[..end]);
    if end < text.len() {
        diff.push_str(&format!(" [{} more bytes]", text.len() - end));
    }
    diff.push_str(if has_line_break { "\n" } else { "\n\\ No newline at end of file\n" });
}

/// Returns the last lines of a text that ends where a line starts.
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

/// Returns the offset where the line of a place starts.
fn line_start(text: &str, offset: usize) -> usize {
    text.as_bytes()[..offset].iter().rposition(|byte| *byte == b'\n').map_or(0, |index| index + 1)
}

/// Returns the offset where the line of a place ends, line break included.
fn line_end(text: &str, offset: usize) -> usize {
    offset + line_end_bytes(&text.as_bytes()[offset..])
}

/// The length of the first line, line break included.
fn line_end_bytes(text: &[u8]) -> usize {
    text.iter().position(|byte| *byte == b'\n').map_or(text.len(), |end| end + 1)
}
