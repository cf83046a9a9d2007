//! Checks facts of the OpenAPI description that are repeated elsewhere: the numbers, which macros take as
//! literals, and the fields of a message, which the page reads.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::{
    approvals::MAX_REASON,
    description,
    extract::{DEFAULT_LIMIT, MAX_LIMIT, MAX_NAME},
    messages::{MAX_SEARCH, MAX_TEXT_CHARS},
    participants::MAX_INSTRUCTIONS_BYTES,
};

/// Collects the values of a key in all schemas of properties and parameters, with the name of the property or
/// parameter.
fn collect(value: &Value, key: &str, name: &str, found: &mut Vec<(String, u64)>) {
    match value {
        Value::Object(fields) => {
            if let Some(limit) = fields.get(key).and_then(Value::as_u64) {
                found.push((name.to_owned(), limit));
            }
            for (field, inner) in fields {
                // A parameter has its name beside its schema, a property before it.
                let name = match (field.as_str(), fields.get("name").and_then(Value::as_str)) {
                    ("schema", Some(parameter)) => parameter,
                    _ => field,
                };
                collect(inner, key, name, found);
            }
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, key, name, found)),
        _ => {}
    }
}

fn limits(key: &str) -> Vec<(String, u64)> {
    let description = serde_json::to_value(description()).expect("JSON");
    let mut found = Vec::new();
    collect(&description, key, "", &mut found);
    found
}

#[test]
fn maxima_of_the_description_are_those_of_the_checks() {
    let pages = limits("maximum");
    assert!(pages.len() >= 5, "{pages:?}");
    for (name, maximum) in &pages {
        assert_eq!((name.as_str(), *maximum), ("limit", u64::from(MAX_LIMIT)));
    }
    let lengths: BTreeMap<&str, usize> = BTreeMap::from([
        ("name", MAX_NAME),
        ("instructions", MAX_INSTRUCTIONS_BYTES),
        ("search", MAX_SEARCH),
        ("text", MAX_TEXT_CHARS),
        ("reason", MAX_REASON),
    ]);
    let described = limits("maxLength");
    for name in lengths.keys() {
        assert!(
            described.iter().any(|(described, _)| described == name),
            "{name} has no limit: {described:?}"
        );
    }
    for (name, length) in described {
        assert_eq!(Some(length), lengths.get(name.as_str()).map(|length| *length as u64), "{name}");
    }
}

#[test]
fn texts_about_pages_have_the_numbers_of_the_checks() {
    let maximum = format!("{},{:03}", MAX_LIMIT / 1000, MAX_LIMIT % 1000);
    let expected = format!("The number of items: 1 to {maximum}. Default: {DEFAULT_LIMIT}.");
    let description = serde_json::to_value(description()).expect("JSON");
    let paths = description["paths"].as_object().expect("paths");
    let operations = paths.values().flat_map(|path| path.as_object().expect("operations").values());
    let parameters = operations.filter_map(|operation| operation["parameters"].as_array()).flatten();
    let texts: Vec<&str> = parameters
        .filter(|parameter| parameter["name"] == "limit")
        .filter_map(|parameter| parameter["description"].as_str())
        .collect();
    assert!(texts.len() >= 5, "{texts:?}");
    for text in texts {
        assert_eq!(text, expected);
    }
}

#[test]
fn the_page_knows_the_fields_of_a_message() {
    let script = include_str!("../../page/lib/space_state.js");
    let (before, _) = script.split_once("}} Message").expect("the type of a message");
    let (_, fields) = before.rsplit_once("@typedef {{").expect("the type of a message");
    let (mut names, mut depth, mut name) = (BTreeSet::new(), 0_i32, String::new());
    for character in fields.chars() {
        match character {
            '{' => depth += 1,
            '}' => depth -= 1,
            ':' if depth == 0 => {
                names.insert(name.trim_matches([' ', '*', '\n']).to_owned());
            }
            ',' if depth == 0 => name.clear(),
            _ if depth == 0 => name.push(character),
            _ => {}
        }
    }
    let description = serde_json::to_value(description()).expect("JSON");
    let properties = &description["components"]["schemas"]["Message"]["properties"];
    let described: BTreeSet<String> = properties.as_object().expect("properties").keys().cloned().collect();
    assert_eq!(names, described);
}
