//! Moves keywords that a dialect does not support into the description.

use serde_json::{Map, Value};

/// Removes these keywords from a schema and adds them to its description.
pub(super) fn move_to_description(schema: &mut Map<String, Value>, keywords: &[&str]) {
    let mut clauses = Vec::new();
    for keyword in keywords {
        if let Some(value) = schema.remove(*keyword)
            && let Some(clause) = keyword_clause(keyword, &value)
        {
            clauses.push(clause);
        }
    }
    if !clauses.is_empty() {
        append_to_description(schema, &format!("({})", clauses.join(", ")));
    }
}

/// Appends a text to the description.
pub(super) fn append_to_description(schema: &mut Map<String, Value>, text: &str) {
    let described = match schema.get("description").and_then(Value::as_str) {
        Some(description) => format!("{description}\n{text}"),
        None => text.to_owned(),
    };
    schema.insert("description".to_owned(), described.into());
}

fn keyword_clause(keyword: &str, value: &Value) -> Option<String> {
    Some(match keyword {
        "default" => format!("default: {value}"),
        "minimum" => format!("at least {value}"),
        "maximum" => format!("at most {value}"),
        "minLength" => format!("at least {value} characters"),
        "maxLength" => format!("at most {value} characters"),
        "minItems" => format!("at least {value} items"),
        "maxItems" => format!("at most {value} items"),
        "pattern" => format!("matching {value}"),
        "format" => format!("format: {}", value.as_str()?),
        _ => return None,
    })
}
