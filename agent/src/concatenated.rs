//! Splits arguments in which a model concatenated several objects: `{…}{…}`.

use serde::de::IgnoredAny;
use serde_json::Deserializer;

/// Splits a text into its objects, if it consists of at least two objects and white space. Does not check
/// their content.
pub(super) fn split_objects(text: &str) -> Option<Vec<&str>> {
    let mut found_objects = Vec::new();
    let mut rest = text.trim_start_matches(WHITE_SPACE);
    while !rest.is_empty() {
        let length = first_object(rest)?;
        let (object, remainder) = rest.split_at_checked(length)?;
        found_objects.push(object);
        rest = remainder.trim_start_matches(WHITE_SPACE);
    }
    (found_objects.len() > 1).then_some(found_objects)
}

pub(super) fn is_whole_object(text: &str) -> bool {
    let text = text.trim_matches(WHITE_SPACE);
    first_object(text) == Some(text.len())
}

/// Returns the length of the object at the start of a text.
fn first_object(text: &str) -> Option<usize> {
    if !text.starts_with('{') {
        return None;
    }
    // Skip values instead of building them, so that size and depth cost no memory.
    let mut values = Deserializer::from_str(text).into_iter::<IgnoredAny>();
    values.next()?.ok()?;
    Some(values.byte_offset())
}

/// JSON's white space (RFC 8259, section 2).
const WHITE_SPACE: [char; 4] = [' ', '\t', '\n', '\r'];

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&[&str]>) {
        assert_eq!(split_objects(text).as_deref(), expected, "{text}");
    }

    #[test]
    fn two_or_more_whole_objects_are_taken_apart() {
        check(r#"{"a":1}{"b":2}"#, Some(&[r#"{"a":1}"#, r#"{"b":2}"#]));
        check(" {}\n{} {} ", Some(&["{}", "{}", "{}"]));
        check(r#"{"a":"}{"}{"b":"\"}{"}"#, Some(&[r#"{"a":"}{"}"#, r#"{"b":"\"}{"}"#]));
    }

    #[test]
    fn other_texts_are_not_split() {
        for text in
            ["", "{}", r#"{"a":"}{"}"#, "{}x", "{}{", "{}[]", "[]{}", "{},{}", r#"{"a":1}{"b":"#, "{}null"]
        {
            check(text, None);
        }
    }

    #[test]
    fn depth_costs_nothing() {
        let deep = format!("{}1{}", r#"{"a":"#.repeat(100_000), "}".repeat(100_000));
        assert!(is_whole_object(&deep));
        check(&format!("{deep}{deep}"), Some(&[&deep, &deep]));
    }
}
