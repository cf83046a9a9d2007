//! The fault of a text that is not valid TOML: one fault, at the position where it starts.
//!
//! The parser continues after a fault and reports follow-up errors, so only the first error is used. An inline table
//! may span several lines, so the parser notices an unclosed one only lines later; `find_unclosed` finds its opening
//! bracket.

use toml::de::Error;

use portcullis_types::EscapedText;

/// Returns the position and the message of the first fault, or `None` if the text is valid.
pub(super) fn fault(text: &str, errors: &[Error]) -> Option<(usize, String)> {
    let start_of = |error: &Error| error.span().map_or(0, |span| span.start);
    let first_error = errors.iter().min_by_key(|error| start_of(error))?;
    let offset = start_of(first_error);
    let trimmed = text.trim_start_matches('\u{feff}').trim_start();
    if trimmed.starts_with('{') {
        let offset = text.len() - trimmed.len();
        return Some((
            offset,
            "this looks like JSON; a policy is TOML and begins with `version = 1`".to_owned(),
        ));
    }
    if let Some((offset, bracket)) = find_unclosed(text, offset) {
        let close = if bracket == '{' { '}' } else { ']' };
        return Some((offset, format!("`{bracket}` is not closed; a `{close}` is missing")));
    }
    if first_error.message() == "duplicate key" {
        return Some((offset, second_time(text, offset, first_error.span()?.end)));
    }
    Some((offset, EscapedText(first_error.message()).to_string()))
}

/// Returns the message about a section or a key that is defined twice.
fn second_time(text: &str, start: usize, end: usize) -> String {
    let line_start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
    let header = |line: &str| {
        let name = line.trim_start().strip_prefix('[')?.split(']').next()?.trim();
        (!name.contains(['{', '='])).then(|| name.to_owned())
    };
    let key = EscapedText(&text[start..end]);
    match header(&text[line_start..]) {
        Some(name) => {
            let first =
                text[..line_start].lines().position(|line| header(line).is_some_and(|one| one == name));
            let location = first.map_or_else(String::new, |line| format!(" of line {}", line + 1));
            format!(
                "the section `[{}]` is written a second time; move its keys to the one{location}",
                EscapedText(&name)
            )
        }
        None => format!("the key `{key}` is written a second time; keep one of the two"),
    }
}

/// Returns the innermost bracket that opens before the parser's fault and is never closed.
fn find_unclosed(text: &str, fault: usize) -> Option<(usize, char)> {
    let mut open_brackets: Vec<(usize, char)> = Vec::new();
    let mut quote: Option<&str> = None;
    let mut offset = 0;
    while let Some(rest) = text.get(offset..).filter(|rest| !rest.is_empty()) {
        let sign = rest.chars().next()?;
        let mut step = sign.len_utf8();
        match quote {
            Some(mark) if rest.starts_with(mark) => {
                step = mark.len();
                quote = None;
            }
            Some("\"" | "\"\"\"") if sign == '\\' => {
                // A backslash is one byte long and escapes the character after it.
                step += rest[1..].chars().next().map_or(0, char::len_utf8);
            }
            // The parser itself reports an unterminated string. Here the string ends at the newline, and the
            // scan continues.
            Some("\"" | "'") if sign == '\n' => quote = None,
            Some(_) => {}
            None => match sign {
                '#' => step = rest.find('\n').unwrap_or(rest.len()),
                '"' | '\'' => {
                    let mark = QUOTES.into_iter().find(|mark| rest.starts_with(mark))?;
                    step = mark.len();
                    quote = Some(mark);
                }
                '{' | '[' => open_brackets.push((offset, sign)),
                '}' | ']' => drop(open_brackets.pop()),
                _ => {}
            },
        }
        offset += step;
    }
    // For a bracket that opens a table header, the parser's message is better.
    let is_header =
        |offset: usize| text[..offset].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
    open_brackets.into_iter().rfind(|(offset, _)| *offset < fault && !is_header(*offset))
}

/// The delimiters of strings. The long ones come first, because they start with the short ones.
const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];
