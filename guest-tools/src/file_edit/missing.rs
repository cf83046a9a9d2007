//! Explains why a passage is not in a text, so that a model can find it.

use super::{has_bare_line_feed, line_breaks};

/// The maximum number of lines that are compared in the search for a similar passage. Without this limit, a long
/// passage could be compared in full at every line of a repetitive text.
const MAX_COMPARED_LINES: usize = 1 << 20;

/// The maximum number of lines of the text that are quoted.
const MAX_QUOTED_LINES: usize = 10;

/// The maximum number of bytes of a line that are quoted.
const MAX_QUOTED_LINE_BYTES: usize = 200;

/// Returns the end of the sentence "it is not in the text: …".
pub(super) fn explain(text: &str, passage: &str) -> String {
    if let Some(reason) = other_line_breaks(text, passage) {
        return reason;
    }
    let passage_lines: Vec<&str> = passage.trim().lines().collect();
    let Some(similar) = find_most_similar(text, &passage_lines) else {
        return "no line of the file resembles its first line; read the file again".to_owned();
    };
    let line = 1 + line_breaks(&text[..similar.start]);
    if similar.lines == passage_lines.len() {
        let last = line + similar.lines - 1;
        let lines =
            if similar.lines == 1 { format!("line {line}") } else { format!("lines {line} to {last}") };
        let actual_lines = quote_lines(&text[similar.start..], similar.lines);
        return format!(
            "{lines} would match except for spaces, tabs or trailing blanks; the file has\n{actual_lines}"
        );
    }
    let differing = line + similar.lines;
    let actual_line =
        text[similar.start..].lines().nth(similar.lines).map_or("its end".to_owned(), quoted_line);
    let expected_line = quoted_line(passage_lines[similar.lines]);
    format!(
        "it would match from line {line} on, but line {differing} is {actual_line} where 'old_text' has {expected_line}"
    )
}

/// Returns the explanation if the text has the passage with other line breaks.
fn other_line_breaks(text: &str, passage: &str) -> Option<String> {
    let has_crlf = passage.contains("\r\n");
    // A passage may have both kinds of breaks. Normalize it first, so that `\r\n` does not become `\r\r\n`.
    if has_bare_line_feed(passage) && text.contains("\r\n") {
        let converted = passage.replace("\r\n", "\n").replace('\n', "\r\n");
        let line = 1 + line_breaks(&text[..text.find(&converted)?]);
        return Some(format!(
            "it is there at line {line} with CRLF line breaks; write them as \\r\\n in 'old_text'"
        ));
    }
    if has_crlf {
        let line = 1 + line_breaks(&text[..text.find(&passage.replace("\r\n", "\n"))?]);
        return Some(format!(
            "it is there at line {line} with LF line breaks; write them as \\n in 'old_text'"
        ));
    }
    None
}

/// A passage that starts like the requested one.
struct SimilarPassage {
    /// The offset of its first line.
    start: usize,
    lines: usize,
}

/// The first passage with the most similar lines, compared without white space.
fn find_most_similar(text: &str, passage_lines: &[&str]) -> Option<SimilarPassage> {
    let squeezed: Vec<String> = passage_lines.iter().map(|line| without_whitespace(line)).collect();
    let mut most_similar: Option<SimilarPassage> = None;
    let mut compared_lines = 0;
    let mut offset = 0;
    for line in text.split_inclusive('\n') {
        let line_pairs = text[offset..].lines().zip(&squeezed).enumerate();
        let similar_pairs = line_pairs.take_while(|(index, (line, passage_line))| {
            is_similar_line(line, passage_line, *index, squeezed.len())
        });
        let lines = similar_pairs.count();
        // Count the line where the comparison stopped as well.
        compared_lines += lines + 1;
        if lines > most_similar.as_ref().map_or(0, |similar| similar.lines) {
            most_similar = Some(SimilarPassage { start: offset, lines });
        }
        if lines == passage_lines.len() || compared_lines > MAX_COMPARED_LINES {
            break;
        }
        offset += line.len();
    }
    most_similar
}

/// Whether a line is like the line of the passage at `index`. The passage may start and end inside a line.
fn is_similar_line(line: &str, passage_line: &str, index: usize, count: usize) -> bool {
    let line = without_whitespace(line);
    match (index == 0, index + 1 == count) {
        (true, true) => !passage_line.is_empty() && line.contains(passage_line),
        (true, false) => line.ends_with(passage_line),
        (false, true) => line.starts_with(passage_line),
        (false, false) => line == passage_line,
    }
}

fn without_whitespace(line: &str) -> String {
    line.split_whitespace().collect()
}

fn quote_lines(text: &str, lines: usize) -> String {
    let mut quoted: Vec<String> = text.lines().take(lines.min(MAX_QUOTED_LINES)).map(truncate_line).collect();
    if lines > MAX_QUOTED_LINES {
        quoted.push(format!("[{} more lines]", lines - MAX_QUOTED_LINES));
    }
    quoted.join("\n")
}

fn quoted_line(line: &str) -> String {
    format!("`{}`", truncate_line(line))
}

fn truncate_line(line: &str) -> String {
    match line.floor_char_boundary(MAX_QUOTED_LINE_BYTES) {
        end if end < line.len() => format!("{} [{} more bytes]", &line[..end], line.len() - end),
        _ => line.to_owned(),
    }
}
