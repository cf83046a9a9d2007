//! Text of a page as Markdown, which a reader shows as that text: no mark, no link, no definition of one, no HTML, no
//! code; and code between its backticks.
//!
//! By CommonMark 0.31 and GitHub's tables and strikethrough. A character is escaped wherever it stands, since a page
//! splits its text over elements: two harmless pieces could join to a mark.

/// Appends a word.
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
    let (mut characters, mut before) = (word.char_indices().peekable(), None);
    while let Some((at, character)) = characters.next() {
        let escaped = match character {
            // `~` may begin a block of code, which ends where the page says.
            '\\' | '`' | '*' | '[' | ']' | '<' | '~' => true,
            // Between letters and digits it is no mark.
            '_' => ![before, characters.peek().map(|(_, next)| *next)]
                .iter()
                .all(|beside| beside.is_some_and(char::is_alphanumeric)),
            '&' => is_entity(&word[at..]),
            _ => false,
        };
        if escaped {
            text.push('\\');
        }
        text.push(character);
        before = Some(character);
    }
}

/// A line. Runs of white space become one space.
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

/// Whether a word at the start of a line is, or may become with what follows, the mark of a quote, a list, a heading, or
/// the line below a table's head, after which bars would split code.
fn begins_a_block(word: &str) -> bool {
    let is_of = |marks: &str| word.chars().all(|character| marks.contains(character));
    word.starts_with('>') || word == "+" || is_of("#") || is_of("=") || is_of("-:|")
}

/// Whether this begins with a reference to a character, such as `&lt;`, which Markdown replaces. Looks no further than the
/// longest name reaches, since a page may be made of ampersands.
fn is_entity(text: &str) -> bool {
    let name = text.strip_prefix('&').unwrap_or(text);
    let name = name.strip_prefix('#').unwrap_or(name);
    let letters = name.bytes().take(MAX_ENTITY_BYTES).take_while(u8::is_ascii_alphanumeric).count();
    letters > 0 && name.as_bytes().get(letters) == Some(&b';')
}

/// `CounterClockwiseContourIntegral` has 31 bytes, more than any other name (HTML, section 13.5).
const MAX_ENTITY_BYTES: usize = 32;

/// A link's target, which ends at its parenthesis: nothing in it is another mark. A backtick would open code that swallows
/// the end.
pub(crate) fn escape_target(target: &str) -> String {
    let mut shown = String::with_capacity(target.len());
    for (at, character) in target.char_indices() {
        match character {
            '(' => shown.push_str("%28"),
            ')' => shown.push_str("%29"),
            '\\' => shown.push_str("%5C"),
            '`' => shown.push_str("%60"),
            '<' => shown.push_str("%3C"),
            '>' => shown.push_str("%3E"),
            _ if character.is_whitespace() || character.is_control() => shown.push_str("%20"),
            '&' if is_entity(&target[at..]) => shown.push_str("&amp;"),
            _ => shown.push(character),
        }
    }
    shown
}

/// Keeps what comes next from becoming one mark with the end of a text: `!` and a link would be an image, two runs of
/// backticks one run.
pub(super) fn part(text: &mut String, next: &str) {
    if next.starts_with('[') && text.ends_with('!') {
        text.pop();
        text.push_str("\\!");
    } else if next.starts_with('`') && text.ends_with('`') {
        text.push(' ');
    }
}

/// The length of the longest run of backticks.
pub(super) fn longest_run(text: &str) -> usize {
    let runs = text.split(|character| character != '`').map(str::len);
    runs.max().unwrap_or(0)
}

/// Code within a line; as text where no code can be: over several lines, and in a cell whose reader would take a bar after
/// a backslash for the cell's end.
pub(super) fn code(content: &str, in_cell: bool) -> String {
    if content.contains('\n') || in_cell && content.contains("\\|") {
        return content.lines().map(escape_line).collect::<Vec<_>>().join("\n");
    }
    code_span(content)
}

/// Code within a line, between more backticks than it has.
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
