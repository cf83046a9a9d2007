//! Writes text of a page as Markdown that renders as exactly this text: without marks, links, link definitions, HTML
//! or code. Code is written between backticks.
//!
//! The rules are those of CommonMark 0.31, with GitHub's tables and strikethrough. Marks are escaped
//! everywhere in a line, because a page can split its text over elements, and two harmless pieces could join
//! to form a mark.

/// Appends a word. `at_start` says whether the word is at the start of a line.
pub(super) fn push_escaped(text: &mut String, word: &str, at_start: bool) {
    if at_start {
        let digits = word.trim_start_matches(|digit: char| digit.is_ascii_digit());
        if digits.len() < word.len() && matches!(digits, "." | ")") {
            text.push_str(&word[..word.len() - 1]);
            text.push('\\');
            text.push_str(digits);
            return;
        }
        if begins_a_block(word) {
            text.push('\\');
        }
    }
    let (mut characters, mut previous) = (word.char_indices().peekable(), None);
    while let Some((offset, character)) = characters.next() {
        let escaped = match character {
            // `~` can open a code block, and the page would choose its end.
            '\\' | '`' | '*' | '[' | ']' | '<' | '~' => true,
            // Between letters and digits `_` is not a mark.
            '_' => ![previous, characters.peek().map(|(_, next)| *next)]
                .iter()
                .all(|neighbour| neighbour.is_some_and(char::is_alphanumeric)),
            '&' => is_entity(&word[offset..]),
            _ => false,
        };
        if escaped {
            text.push('\\');
        }
        text.push(character);
        previous = Some(character);
    }
}

/// Escapes a line. Runs of white space become one space.
pub(crate) fn escape_line(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    for word in line.split_whitespace() {
        if !text.is_empty() {
            text.push(' ');
        }
        let at_start = text.is_empty();
        push_escaped(&mut text, word, at_start);
    }
    text
}

/// Whether a word at the start of a line is a mark, or can become one together with the next words: of a quote, a list,
/// a heading, or the line below a table's head. After such a line, bars would split code.
fn begins_a_block(word: &str) -> bool {
    let is_of = |marks: &str| word.chars().all(|character| marks.contains(character));
    word.starts_with('>') || word == "+" || is_of("#") || is_of("=") || is_of("-:|")
}

/// Whether the text starts with a character reference such as `&lt;`, which Markdown would decode. The search ends at
/// the length of the longest name, because a page can consist of ampersands.
fn is_entity(text: &str) -> bool {
    let name = text.strip_prefix('&').unwrap_or(text);
    let name = name.strip_prefix('#').unwrap_or(name);
    let letters = name.bytes().take(MAX_ENTITY_BYTES).take_while(u8::is_ascii_alphanumeric).count();
    letters > 0 && name.as_bytes().get(letters) == Some(&b';')
}

/// One more than the 31 bytes of `CounterClockwiseContourIntegral`, the longest name (HTML, section 13.5).
const MAX_ENTITY_BYTES: usize = 32;

/// Escapes the target of a link, so that the link ends at its own parenthesis. For example, a backtick in the target
/// could open code that includes the parenthesis.
pub(crate) fn escape_target(target: &str) -> String {
    let mut escaped = String::with_capacity(target.len());
    for (offset, character) in target.char_indices() {
        match character {
            '(' => escaped.push_str("%28"),
            ')' => escaped.push_str("%29"),
            '\\' => escaped.push_str("%5C"),
            '`' => escaped.push_str("%60"),
            '<' => escaped.push_str("%3C"),
            '>' => escaped.push_str("%3E"),
            _ if character.is_whitespace() || character.is_control() => escaped.push_str("%20"),
            '&' if is_entity(&target[offset..]) => escaped.push_str("&amp;"),
            _ => escaped.push(character),
        }
    }
    escaped
}

/// Keeps `appended` from forming a mark with the end of a text. `!` and a link would be an image, and two runs of
/// backticks would be one.
pub(super) fn separate_marks(text: &mut String, appended: &str) {
    if appended.starts_with('[') && text.ends_with('!') {
        text.pop();
        text.push_str("\\!");
    } else if appended.starts_with('`') && text.ends_with('`') {
        text.push(' ');
    }
}

/// The length of the longest run of backticks.
pub(super) fn longest_run(text: &str) -> usize {
    let runs = text.split(|character| character != '`').map(str::len);
    runs.max().unwrap_or(0)
}

/// Code within a line. It becomes text if it has several lines, or if it is in a table cell and has a bar after a
/// backslash, which would end the cell.
pub(super) fn code(content: &str, in_cell: bool) -> String {
    if content.contains('\n') || in_cell && content.contains("\\|") {
        return content.lines().map(escape_line).collect::<Vec<_>>().join("\n");
    }
    code_span(content)
}

/// Code within a line, between more backticks than the code contains in a row.
fn code_span(content: &str) -> String {
    let mark = "`".repeat(longest_run(content) + 1);
    let pad = if content.starts_with('`') || content.ends_with('`') { " " } else { "" };
    format!("{mark}{pad}{content}{pad}{mark}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(line: &str, expected: &str) {
        assert_eq!(escape_line(line), expected);
    }

    #[test]
    fn marks_are_escaped_where_they_are_marks() {
        check("a-b_c d#e 1. x > y = z: (q) $5 R&D", "a-b_c d#e 1. x > y = z: (q) $5 R&D");
        check(
            "[a](b) <c> `d` *e* _f_ \\ ~~g~~",
            "\\[a\\](b) \\<c> \\`d\\` \\*e\\* \\_f\\_ \\\\ \\~\\~g\\~\\~",
        );
        check("&lt;a&#x3e;&b c;", "\\&lt;a\\&#x3e;&b c;");
        for (line, expected) in [
            ("> a", "\\> a"),
            (">a", "\\>a"),
            ("## a", "\\## a"),
            ("- a", "\\- a"),
            ("-5 a", "-5 a"),
            ("--- a", "\\--- a"),
            (":-- a", "\\:-- a"),
            ("| a", "\\| a"),
            ("1. a", "1\\. a"),
            ("12) a", "12\\) a"),
            ("1.5 a", "1.5 a"),
        ] {
            check(line, expected);
        }
    }

    #[test]
    fn a_target_has_no_marks() {
        let target = "https://a.example/(x) y?`\\<b>&lt;c&d=1";
        assert_eq!(escape_target(target), "https://a.example/%28x%29%20y?%60%5C%3Cb%3E&amp;lt;c&d=1");
    }
}
