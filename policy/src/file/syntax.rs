//! What is wrong with a text that is no TOML: one fault, where it begins.
//!
//! The parser goes on after a fault and stumbles over what follows from it; an inline table may go over several
//! lines, so one that is never closed is noticed lines later only.

use toml::de::Error;

use portcullis_types::Shown;

/// The place and the message of the first fault; none where there is none.
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
    Some((found, Shown(first.message()).to_string()))
}

/// The innermost bracket that was opened before the parser found a fault and is never closed.
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
                step += rest[1..].chars().next().map_or(0, char::len_utf8);
            }
            // A string of one line that does not end there is a fault by itself.
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
    // What the parser says of a header is better.
    let is_header = |at: usize| text[..at].rsplit('\n').next().is_some_and(|line| line.trim().is_empty());
    open.into_iter().rfind(|(at, _)| *at < fault && !is_header(*at))
}

/// What strings begin and end with, the long ones first.
const QUOTES: [&str; 4] = ["\"\"\"", "'''", "\"", "'"];
