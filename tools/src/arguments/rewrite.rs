//! Applies edits to a JSON text. Values outside the edit keep their bytes. The order of the keys and the
//! white space around an edited value can change.
//!
//! Serializing the repaired `Value` would be simpler, but a `Value` cannot hold every number: the repair of
//! one field must not lose digits of a `u128` beside it.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The edit of one value in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueEdit {
    /// Remove the value. Only a member of an object can be removed.
    Remove,
    /// Replace the value by another text.
    Replace(String),
    /// Edit some members of an object.
    Members(BTreeMap<String, ValueEdit>),
    /// Edit some items of an array.
    Items(BTreeMap<usize, ValueEdit>),
    /// Replace a string by the JSON that it contains. The second field edits that JSON.
    Unquote(String, Option<Box<ValueEdit>>),
}

/// Applies an edit to the text that the edit was made for.
///
/// # Errors
/// Fails if the edit was made for another text.
pub(super) fn rewrite(text: &str, edit: &ValueEdit) -> Result<String, serde_json::Error> {
    match edit {
        ValueEdit::Remove => Ok("null".to_owned()),
        ValueEdit::Replace(replacement) => Ok(replacement.clone()),
        ValueEdit::Unquote(inner, None) => Ok(inner.clone()),
        ValueEdit::Unquote(inner, Some(edit)) => rewrite(inner, edit),
        ValueEdit::Members(edits) => {
            let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
            let mut rewritten = String::with_capacity(text.len());
            for (name, member) in members {
                let edit = edits.get(&name);
                if edit == Some(&ValueEdit::Remove) {
                    continue;
                }
                rewritten.push(if rewritten.is_empty() { '{' } else { ',' });
                rewritten.push_str(&serde_json::to_string(&name)?);
                rewritten.push(':');
                append(&mut rewritten, member.get(), edit)?;
            }
            rewritten.push_str(if rewritten.is_empty() { "{}" } else { "}" });
            Ok(rewritten)
        }
        ValueEdit::Items(edits) => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(text)?;
            let mut rewritten = String::with_capacity(text.len());
            for (index, item) in items.iter().enumerate() {
                rewritten.push(if index == 0 { '[' } else { ',' });
                append(&mut rewritten, item.get(), edits.get(&index))?;
            }
            rewritten.push_str(if items.is_empty() { "[]" } else { "]" });
            Ok(rewritten)
        }
    }
}

fn append(out: &mut String, text: &str, edit: Option<&ValueEdit>) -> Result<(), serde_json::Error> {
    match edit {
        None => out.push_str(text),
        Some(edit) => out.push_str(&rewrite(text, edit)?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unchanged_value_keeps_its_text() {
        let text =
            r#"{"big": 340282366920938463463374607431768211455, "n": "5", "list": [1.50, "2"], "x": 1}"#;
        let edit = ValueEdit::Members(
            [
                ("n".to_owned(), ValueEdit::Replace("5".into())),
                ("list".to_owned(), ValueEdit::Items([(1, ValueEdit::Replace("2".into()))].into())),
                ("x".to_owned(), ValueEdit::Remove),
            ]
            .into(),
        );
        assert_eq!(
            rewrite(text, &edit).expect("fits"),
            r#"{"big":340282366920938463463374607431768211455,"list":[1.50,2],"n":5}"#
        );
    }
}
