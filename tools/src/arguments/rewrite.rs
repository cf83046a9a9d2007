//! Edits of a JSON text that keep every byte outside the changed places.
//!
//! Serialising the changed value would be simpler, but a `Value` cannot hold every number that a text can:
//! the repair of a `limit` must not cost a `u128` beside it its digits.

use std::collections::BTreeMap;

use serde_json::value::RawValue;

/// The edit of one value of a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ValueEdit {
    /// Remove it; only a member of an object can be removed.
    Remove,
    /// Replace it by another text.
    Replace(String),
    /// Edit some members of an object.
    Members(BTreeMap<String, ValueEdit>),
    /// Edit some items of an array.
    Items(BTreeMap<usize, ValueEdit>),
    /// Replace a string by the JSON in it, which may be edited in turn.
    Unquote(String, Option<Box<ValueEdit>>),
}

/// Applies an edit to the text that the edit was made for.
///
/// # Errors
/// If the edit was made for another text.
pub(super) fn rewrite(text: &str, edit: &ValueEdit) -> Result<String, serde_json::Error> {
    match edit {
        ValueEdit::Remove => Ok("null".to_owned()),
        ValueEdit::Replace(new) => Ok(new.clone()),
        ValueEdit::Unquote(inner, None) => Ok(inner.clone()),
        ValueEdit::Unquote(inner, Some(edit)) => rewrite(inner, edit),
        ValueEdit::Members(edits) => {
            let members: BTreeMap<String, Box<RawValue>> = serde_json::from_str(text)?;
            let mut new = String::with_capacity(text.len());
            for (name, member) in members {
                let edit = edits.get(&name);
                if edit == Some(&ValueEdit::Remove) {
                    continue;
                }
                new.push(if new.is_empty() { '{' } else { ',' });
                new.push_str(&serde_json::to_string(&name)?);
                new.push(':');
                append(&mut new, member.get(), edit)?;
            }
            new.push_str(if new.is_empty() { "{}" } else { "}" });
            Ok(new)
        }
        ValueEdit::Items(edits) => {
            let items: Vec<Box<RawValue>> = serde_json::from_str(text)?;
            let mut new = String::with_capacity(text.len());
            for (index, item) in items.iter().enumerate() {
                new.push(if index == 0 { '[' } else { ',' });
                append(&mut new, item.get(), edits.get(&index))?;
            }
            new.push_str(if items.is_empty() { "[]" } else { "]" });
            Ok(new)
        }
    }
}

fn append(new: &mut String, text: &str, edit: Option<&ValueEdit>) -> Result<(), serde_json::Error> {
    match edit {
        None => new.push_str(text),
        Some(edit) => new.push_str(&rewrite(text, edit)?),
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
