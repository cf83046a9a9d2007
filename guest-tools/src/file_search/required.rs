//! Finds texts that every match of an expression contains. Only the outer sequence of the expression is read.

use regex_syntax::hir::{Class, Hir, HirKind};

/// A text that every match contains.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Required {
    /// The text, in lower case if case does not matter.
    pub(super) text: String,
    /// Whether the letters of the text match either case.
    pub(super) any_case: bool,
}

/// Returns the texts that every match of an expression contains, each as long as possible.
pub(super) fn texts(expression: &Hir) -> Vec<Required> {
    let mut required_texts = vec![Required::default()];
    collect_required_texts(expression, &mut required_texts);
    required_texts.retain(|required| !required.text.is_empty());
    required_texts
}

/// Appends to the last text. Starts a new text if other characters can come in between.
fn collect_required_texts(expression: &Hir, required_texts: &mut Vec<Required>) {
    let start_new_text = |required_texts: &mut Vec<Required>| required_texts.push(Required::default());
    match expression.kind() {
        HirKind::Empty | HirKind::Look(_) => {}
        HirKind::Literal(literal) => match std::str::from_utf8(&literal.0) {
            Ok(text) => current_text(required_texts).text.push_str(text),
            Err(_) => start_new_text(required_texts),
        },
        HirKind::Class(class) => match two_case_letter(class) {
            Some(letter) => {
                let required = current_text(required_texts);
                required.text.push(letter);
                required.any_case = true;
            }
            None => start_new_text(required_texts),
        },
        HirKind::Capture(capture) => collect_required_texts(&capture.sub, required_texts),
        HirKind::Concat(parts) => parts.iter().for_each(|part| collect_required_texts(part, required_texts)),
        HirKind::Repetition(repetition) => {
            start_new_text(required_texts);
            // The first repetition is certain, so every match contains its texts.
            if repetition.min > 0 {
                collect_required_texts(&repetition.sub, required_texts);
                start_new_text(required_texts);
            }
        }
        HirKind::Alternation(_) => start_new_text(required_texts),
    }
}

fn current_text(required_texts: &mut Vec<Required>) -> &mut Required {
    if required_texts.is_empty() {
        required_texts.push(Required::default());
    }
    let last = required_texts.len() - 1;
    &mut required_texts[last]
}

/// Returns the ASCII letter whose two cases form the class, if there is one.
fn two_case_letter(class: &Class) -> Option<char> {
    let contains_letter = |letter: char| match class {
        Class::Unicode(class) => {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&letter))
        }
        Class::Bytes(class) => u8::try_from(letter).is_ok_and(|byte| {
            class.ranges().iter().any(|range| (range.start()..=range.end()).contains(&byte))
        }),
    };
    let size = match class {
        Class::Unicode(class) => class.ranges().iter().map(regex_syntax::hir::ClassUnicodeRange::len).sum(),
        Class::Bytes(class) => {
            class.ranges().iter().map(regex_syntax::hir::ClassBytesRange::len).sum::<usize>()
        }
    };
    let letter = ('a'..='z')
        .find(|letter| contains_letter(*letter) && contains_letter(letter.to_ascii_uppercase()))?;
    // In Unicode the Kelvin sign is a case of `k`, and the long s is a case of `s`.
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
        let text_cases: Vec<_> =
            texts.iter().map(|required_text| (required_text.text.as_str(), required_text.any_case)).collect();
        assert_eq!(text_cases, expected, "{expression}");
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
