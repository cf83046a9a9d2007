//! Escapes text for Markdown, and puts code between backticks.

/// Appends a word. Characters that Markdown would read as marks are escaped.
pub(super) fn push_escaped(text: &mut String, word: &str, at_start: bool) {
    let ordered = word.trim_start_matches(|digit: char| digit.is_ascii_digit());
    let marker = matches!(word, "+" | "-" | ">") || word.bytes().all(|byte| byte == b'#' || byte == b'=');
    if at_start && (marker || word.starts_with('>')) {
        text.push('\\');
    } else if at_start && ordered.len() < word.len() && ordered == "." {
        text.push_str(&word[..word.len() - 1]);
        text.push_str("\\.");
        return;
    }
    let mut characters = word.char_indices().peekable();
    while let Some((at, character)) = characters.next() {
        let next = characters.peek().map(|(_, next)| *next);
        let escaped = match character {
            '*' | '`' | '\\' => true,
            '_' => at == 0 || next.is_none(),
            ']' => next == Some('('),
            '<' => next.is_some_and(|next| next.is_ascii_alphabetic() || matches!(next, '/' | '!' | '?')),
            _ => false,
        };
        if escaped {
            text.push('\\');
        }
        text.push(character);
    }
}

/// Escapes a link's label, so that its text cannot end the label.
pub(super) fn escape_label(label: &str) -> String {
    label.replace("](", "]\\(")
}

/// Escapes a line of plain text: it can form no mark, link or tag of Markdown.
pub(crate) fn escape_line(line: &str) -> String {
    let mut text = String::with_capacity(line.len());
    let mut characters = line.chars().peekable();
    while let Some(character) = characters.next() {
        let escaped = match character {
            '\\' | '`' | '*' | '[' | ']' => true,
            '<' => characters.peek().is_some_and(|next| next.is_ascii_alphabetic() || "/!?".contains(*next)),
            _ => false,
        };
        if escaped {
            text.push('\\');
        }
        text.push(character);
    }
    text
}

/// Escapes a link's target, so that its text cannot end the target.
pub(crate) fn escape_target(target: &str) -> String {
    target.replace('(', "%28").replace(')', "%29").replace(' ', "%20").replace(['<', '>', '\n'], "")
}

/// The length of the longest run of backticks.
pub(super) fn longest_run(text: &str) -> usize {
    let runs = text.split(|character| character != '`').map(str::len);
    runs.max().unwrap_or(0)
}

/// Writes code within a line, between a longer run of backticks than the code has.
pub(super) fn code_span(content: &str) -> String {
    let mark = "`".repeat(longest_run(content) + 1);
    let pad = if content.starts_with('`') || content.ends_with('`') { " " } else { "" };
    format!("{mark}{pad}{content}{pad}{mark}")
}
