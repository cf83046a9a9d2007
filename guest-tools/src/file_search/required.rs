//! Finds texts that every match of an expression contains, as far as its outer sequence shows them.

use regex_syntax::hir::{Class, Hir, HirKind};

/// A text that every match contains.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Required {
    /// In lower case if case does not matter.
    pub(super) text: String,
    /// Whether its letters match either case.
    pub(super) any_case: bool,
}

/// The texts that every match of an expression contains, each as long as possible.
pub(super) fn texts(expression: &Hir) -> Vec<Required> {
    let mut found = vec![Required::default()];
    gather(expression, &mut found);
    found.retain(|required| !required.text.is_empty());
    found
}

/// Appends to the last text, or begins a new one if other characters may stand between.
fn gather(part: &Hir, found: &mut Vec<Required>) {
    let end = |found: &mut Vec<Required>| found.push(Required::default());
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => current(found).text.push_str(text),
            Err(_) => end(found),
        },
        HirKind::Class(class) => match letter(class) {
            Some(letter) => {
                let required = current(found);
                required.text.push(letter);
                required.any_case = true;
            }
            None => end(found),
        },
        HirKind::Capture(capture) => gather(&capture.sub, found),
        HirKind::Concat(parts) => parts.iter().for_each(|part| gather(part, found)),
        HirKind::Repetition(repetition) => {
            end(found);
            if repetition.min > 0 {
                gather(&repetition.sub, found);
                end(found);
            }
        }
        HirKind::Alternation(_) => end(found),
    }
}

fn current(found: &mut Vec<Required>) -> &mut Required {
    if found.is_empty() {
        found.push(Required::default());
    }
    let last = found.len() - 1;
    &mut found[last]
}

/// The ASCII letter whose cases form the class, if any.
fn letter(class: &Class) -> Option<char> {
    let has = |letter: char| match class {
        Class::Unicode(class) => class.ranges().iter().any(|it| (it.start()..=it.end()).contains(&letter)),
        Class::Bytes(class) => u8::try_from(letter)
            .is_ok_and(|byte| class.ranges().iter().any(|it| (it.start()..=it.end()).contains(&byte))),
    };
    let size = match class {
        Class::Unicode(class) => class.ranges().iter().map(regex_syntax::hir::ClassUnicodeRange::len).sum(),
        Class::Bytes(class) => {
            class.ranges().iter().map(regex_syntax::hir::ClassBytesRange::len).sum::<usize>()
        }
    };
    let letter = ('a'..='z').find(|letter| has(*letter) && has(letter.to_ascii_uppercase()))?;
    // The Kelvin sign is a case of `k`, and the long s a case of `s`.
    let cases = if matches!(class, Class::Unicode(_)) && matches!(letter, 'k' | 's') { 3 } else { 2 };
    (size == cases).then_some(letter)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(expression: &str, expected: &[(&str, bool)]) {
        let hir = regex_syntax::parse(expression).expect("an expression");
        let texts = texts(&hir);
        let found: Vec<_> = texts.iter().map(|it| (it.text.as_str(), it.any_case)).collect();
        assert_eq!(found, expected, "{expression}");
    }

    #[test]
    fn literal_in_every_match_is_required() {
        check("abc", &[("abc", false)]);
        check("(?i)abc", &[("abc", true)]);
        check(r"(?i)impl \w+ for x", &[("impl ", true), (" for x", true)]);
        check(r"(?i)a(b)\bc", &[("abc", true)]);
        check(r"x(?i:y)z", &[("xyz", true)]);
        check("(?i)task", &[("task", true)]);
        check("(?i-u)task", &[("task", true)]);
        check("a(bc)+d", &[("a", false), ("bc", false), ("d", false)]);
        check("^a.b$", &[("a", false), ("b", false)]);
    }

    #[test]
    fn optional_literal_is_not_required() {
        check("a|b", &[]);
        check("(?i)x(ab|cd)y", &[("x", true), ("y", true)]);
        check("(?i)(ab)?", &[]);
        check("ab*", &[("a", false)]);
        check("[ab]", &[]);
        check("[aAbB]", &[]);
        check("[a-zA-Z]", &[]);
        check("(?i)ä", &[]);
    }
}
