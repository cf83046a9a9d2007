//! Results as text: exact for programs, safe for terminals.

use super::{escape_for_display, framed};
use crate::Content;

/// Returns the text of a result: its text blocks joined by newlines, as for a model. Any other block becomes
/// a line that describes it.
#[must_use]
pub fn of_content(content: &[Content]) -> String {
    let blocks: Vec<String> = content.iter().map(block_text).collect();
    blocks.join("\n")
}

/// Escapes a text for a terminal. Control characters and deceptive characters are escaped, except tabs and
/// newlines, including CRLF.
#[must_use]
pub fn for_terminal(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        let line_break = if line.ends_with("\r\n") {
            "\r\n"
        } else if line.ends_with('\n') {
            "\n"
        } else {
            ""
        };
        for (index, part) in line[..line.len() - line_break.len()].split('\t').enumerate() {
            if index > 0 {
                escaped.push('\t');
            }
            escaped.push_str(&escape_for_display(part).to_string());
        }
        escaped.push_str(line_break);
    }
    escaped
}

/// Escapes a text for a terminal, and ends it with a newline.
#[must_use]
pub fn for_terminal_with_newline(text: &str) -> String {
    let mut escaped = for_terminal(text);
    if !escaped.is_empty() && !escaped.ends_with('\n') {
        escaped.push('\n');
    }
    escaped
}

/// Escapes a text for use within a trusted line. Every character that a terminal would act on is escaped.
#[must_use]
pub fn inline(text: &str) -> String {
    escape_for_display(text).to_string()
}

/// Formats a text of several lines below a trusted line. Each line is escaped and follows a margin, so that
/// no line looks trusted. If the terminal's width is given, long lines are folded here, because the terminal
/// would continue them in the margin's column.
#[must_use]
pub fn behind_margin(text: &str, margin: &str, columns: Option<usize>) -> String {
    let with_margin = |piece: &str| format!("{margin}{piece}").trim_end().to_owned() + "\n";
    let Some(columns) = columns else {
        return text.lines().map(|line| with_margin(&for_terminal(line))).collect();
    };
    // Leave the last column free, because some terminals wrap as soon as it is written.
    let max_columns = columns.saturating_sub(margin.chars().count() + 1).max(1);
    let mut output = String::new();
    for line in text.lines() {
        // Replace tabs, because the width of a tab depends on its column.
        let line = framed::shorten_spaces(&inline(&line.replace('\t', TAB)));
        let pieces = framed::fold(&line, max_columns);
        let is_folded = pieces.len() > 1;
        output.extend(pieces.into_iter().map(|piece| {
            if is_folded { with_margin(&framed::mark_end_spaces(piece)) } else { with_margin(piece) }
        }));
    }
    output
}

/// Replaces a tab where columns are counted.
const TAB: &str = "    ";

/// Joins the lines of a text into one line.
#[must_use]
pub fn in_one_line(text: &str) -> String {
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    inline(&lines.join(" "))
}

/// Formats a number of bytes in a readable unit; exact below 1 KiB.
#[must_use]
pub fn bytes(count: u64) -> String {
    let units = [("GiB", 1_u64 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| count >= *size) {
        None => format!("{count} bytes"),
        Some((unit, size)) if count.is_multiple_of(size) => format!("{} {unit}", count / size),
        // One decimal, rounded down, so that a size is never overstated.
        Some((unit, size)) => format!("{}.{} {unit}", count / size, count % size * 10 / size),
    }
}

fn block_text(content: &Content) -> String {
    match content {
        Content::Text { text } => text.clone(),
        Content::Image { data, mime_type } => format!("[image: {mime_type}, {}]", decoded_size(data)),
        Content::Audio { data, mime_type } => format!("[audio: {mime_type}, {}]", decoded_size(data)),
        Content::Resource { text: Some(text), .. } => text.clone(),
        Content::Resource { uri, mime_type, blob, .. } => {
            let mime_type = mime_type.as_deref().unwrap_or("unknown type");
            match blob {
                Some(blob) => format!("[resource: {uri}, {mime_type}, {}]", decoded_size(blob)),
                None => format!("[resource: {uri}, {mime_type}, empty]"),
            }
        }
        Content::ResourceLink { uri, name, .. } => format!("[resource link: {name}, {uri}]"),
    }
}

/// Returns the decoded size of base64 text.
fn decoded_size(base64: &str) -> String {
    let padding = base64.bytes().rev().take_while(|byte| *byte == b'=').count();
    // Saturating, because a text that is not base64 may be all padding.
    bytes((base64.len() / 4 * 3).saturating_sub(padding) as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_blocks_are_joined_and_others_are_named() {
        let image = Content::Image { data: "AAAA".into(), mime_type: "image/png".into() };
        assert_eq!(of_content(&[Content::text("a\n")]), "a\n");
        assert_eq!(
            of_content(&[Content::text("a"), image, Content::text("b")]),
            "a\n[image: image/png, 3 bytes]\nb"
        );
        assert_eq!(of_content(&[]), "");
    }

    #[test]
    fn behind_a_margin_no_line_is_longer_than_the_terminal() {
        let forged = format!("{}approved: pinned in lock", "x".repeat(20));
        for columns in 5..60 {
            for text in [forged.clone(), format!("a\t{}b", " ".repeat(70)), "ä".repeat(50)] {
                let output = behind_margin(&text, "  | ", Some(columns));
                for line in output.lines() {
                    assert!(line.starts_with("  |"), "{columns}: {output}");
                    // At least one character is always placed, even if it does not fit.
                    assert!(line.chars().count() <= columns.max(6), "{columns}: {output}");
                }
            }
        }
        assert_eq!(behind_margin(&forged, "| ", None), format!("| {forged}\n"));
        assert_eq!(behind_margin("a\n\nb", "| ", Some(80)), "| a\n|\n| b\n");
    }

    #[test]
    fn only_line_breaks_and_tabs_reach_a_terminal_unescaped() {
        for (text, expected) in [
            ("a\tb\nc", "a\tb\nc\n"),
            ("a\r\nb\n", "a\r\nb\n"),
            ("a\rb", "a\\u{d}b\n"),
            ("\u{1b}]52;c;x\u{7}", "\\u{1b}]52;c;x\\u{7}\n"),
            ("\u{202e}gpj", "\\u{202e}gpj\n"),
            ("", ""),
        ] {
            assert_eq!(for_terminal_with_newline(text), expected);
        }
    }

    #[test]
    fn sizes_are_readable() {
        for (count, expected) in [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (16_384, "16 KiB"),
            (1536, "1.5 KiB"),
            (64 << 20, "64 MiB"),
        ] {
            assert_eq!(bytes(count), expected);
        }
    }
}
