//! Explains why a passage is not in a text, to help find it.

use super::{has_bare_line_feed, line_breaks};

/// The most lines that are compared in the search for a similar passage. A passage of many lines could be
/// compared at every line of a repetitive text.
const COMPARED_LINES: usize = 1 << 20;

/// The number of lines of the text that are quoted.
const QUOTED_LINES: usize = 10;

/// The length of a line that is quoted, in bytes.
const QUOTED_LINE_BYTES: usize = 200;

/// Completes the sentence "it is not in the text: …".
pub(super) fn explain(text: &str, passage: &str) -> String {
    if let Some(reason) = other_line_breaks(text, passage) {
        return reason;
    }
    let wanted: Vec<&str> = passage.trim().lines().collect();
    let Some(found) = most_similar(text, &wanted) else {
        return "no line there is like its first line; read the file again".to_owned();
    };
    let line = 1 + line_breaks(&text[..found.at]);
    if found.lines == wanted.len() {
        let last = line + found.lines - 1;
        let lines = if found.lines == 1 { format!("line {line}") } else { format!("lines {line} to {last}") };
        let own = quoted(&text[found.at..], found.lines);
        return format!(
            "{lines} would match but for spaces, tabs or blank ends of lines; the file has\n{own}"
        );
    }
    let differing = line + found.lines;
    let has = text[found.at..].lines().nth(found.lines).map_or("its end".to_owned(), quoted_line);
    let wants = quoted_line(wanted[found.lines]);
    format!("it would match from line {line} on, but line {differing} is {has} where 'old_text' has {wants}")
}

/// The explanation if the passage is there with other line breaks.
fn other_line_breaks(text: &str, passage: &str) -> Option<String> {
    let has_crlf = passage.contains("\r\n");
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

/// A passage that begins like the wanted one.
struct Similar {
    /// The offset of its first line.
    at: usize,
    /// The number of similar lines.
    lines: usize,
}

/// The place with the most similar lines, ignoring white space; the first of several.
fn most_similar(text: &str, wanted: &[&str]) -> Option<Similar> {
    let squeezed: Vec<String> = wanted.iter().map(|line| squeeze(line)).collect();
    let mut best: Option<Similar> = None;
    let mut compared = 0;
    let mut at = 0;
    for line in text.split_inclusive('\n') {
        let same = text[at..].lines().zip(&squeezed).enumerate();
        let same = same.take_while(|(index, (line, wanted))| alike(line, wanted, *index, squeezed.len()));
        let lines = same.count();
        compared += lines + 1;
        if lines > best.as_ref().map_or(0, |best| best.lines) {
            best = Some(Similar { at, lines });
        }
        if lines == wanted.len() || compared > COMPARED_LINES {
            break;
        }
        at += line.len();
    }
    best
}

/// Whether a line is like one of the passage, which may begin and end within a line.
fn alike(line: &str, wanted: &str, index: usize, count: usize) -> bool {
    let line = squeeze(line);
    match (index == 0, index + 1 == count) {
        (true, true) => !wanted.is_empty() && line.contains(wanted),
        (true, false) => line.ends_with(wanted),
        (false, true) => line.starts_with(wanted),
        (false, false) => line == wanted,
    }
}

fn squeeze(line: &str) -> String {
    line.split_whitespace().collect()
}

fn quoted(text: &str, lines: usize) -> String {
    let mut quoted: Vec<String> = text.lines().take(lines.min(QUOTED_LINES)).map(cut).collect();
    if lines > QUOTED_LINES {
        quoted.push(format!("[{} more lines]", lines - QUOTED_LINES));
    }
    quoted.join("\n")
}

fn quoted_line(line: &str) -> String {
    format!("`{}`", cut(line))
}

fn cut(line: &str) -> String {
    match line.floor_char_boundary(QUOTED_LINE_BYTES) {
        end if end < line.len() => format!("{} [{} more bytes]", &line[..end], line.len() - end),
        _ => line.to_owned(),
    }
}
