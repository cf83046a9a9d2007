//! The fault of a text that is not valid TOML: one fault, at the place where it begins.
//!
//! The parser continues after a fault and reports follow-up errors, so only the first is used. An inline
//! table may span several lines, so the parser notices an unclosed one only lines later; `unclosed` finds its
//! opening bracket.

use toml::de::Error;

use portcullis_types::EscapedText;

/// The place and the message of the first fault; none if there is none.
pub(super) fn fault(text: &str, errors: &[Error]) -> Option<(usize, String)> {
    let at = |error: &Error| error.span().map_or(0, |span| span.start);
    let first = errors.iter().min_by_key(|error| at(error))?;
    let found = at(first);
    let trimmed = text.trim_start_matches('\u{feff}').trim_start();
    if trimmed.starts_with('{') {
        let at = text.len() - trimmed.len();
        return Some((at, "this looks like JSON; a policy is TOML and begins with `version = 1`".to_owned()));
    }
    if let Some((at, bracket)) = unclosed(text, found) {
        let close = if bracket == '{' { '}' } else { ']' };
        return Some((at, format!("`{bracket}` is not closed; a `{close}` is missing")));
    }
    Some((found, EscapedText(first.message()).to_string()))
}

/// The innermost bracket that was opened before the parser found a fault and never closed.
fn unclosed(text: &str, fault: usize) -> Option<(usize, char)> {
    let mut open: Vec<(usize, char)> = Vec::new();
    let mut quote: Option<&str> = None;
    let mut at = 0;
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        let sign = rest.chars().next()?;
        let mut step = sign.len_utf8();
        match quote {
            Some(mark) if rest.starts_with(mark) => {
                step = mark.len();
                quote = None;
            }
            Some("\"" | "\"\"\"") if sign == '\\' => {
                // A backslash is one byte; it hides the character after it.
                step += rest[1..].chars().next().map_or(0, char::len_utf8);
            }
            // An unterminated one-line string is a fault by itself; it ends here so that the scan goes on.
            Some("\"" | "'") if sign == '\n' => quote = None,
            Some(_) => {}
            None => match sign {
                '#' => step = rest.find('\n').unwrap_or(rest.len()),
                '"' | '\'' => {
                    let mark = QUOTES.into_iter().find(|mark| rest.starts_with(mark))?;
                    step = mark.len();
                    quote = Some(mark);
                }
                '{' | '[' => open.push((at, sign)),
                '}' | ']' => drop(open.pop()),
                _ => {}
            },
        }
        at += step;
    }
    // For a bracket that opens a table header, the parser's message is better.
    let is_header = |at: usize| text[..at].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
    open.into_iter().rfind(|(at, _)| *at < fault && !is_header(*at))
}

/// The marks at both ends of a string, long ones first.
const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];
