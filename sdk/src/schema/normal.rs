//! The normal form: one notation for each schema, without anything that confuses a model or a provider.
//!
//! - There is no `$schema`, no `title`, no numeric `format`, and no bound that only repeats an integer's width.
//! - An optional property has its own schema and is not in `required`; null is not one of its values.
//! - Alternative texts are one `enum`, with their documentation as a list in the description.
//! - Other alternatives are `anyOf`.
//! - An object with properties always has `required`, in order of declaration.
//! - Keys are sorted, so equal types give equal bytes.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Converts a schema from schemars to the normal form.
pub(super) fn normalize(schema: Value) -> Value {
    match schema {
        Value::Bool(true) => Map::new().into(),
        Value::Object(map) => sorted(normalize_object(map).into()),
        other => other,
    }
}

/// The same value with the keys of every object sorted, independent of serde_json's map type.
pub(crate) fn sorted(value: Value) -> Value {
    match value {
        Value::Object(map) => {
            let mut ordered = BTreeMap::new();
            for (key, value) in map {
                ordered.insert(key, sorted(value));
            }
            Value::Object(ordered.into_iter().collect())
        }
        Value::Array(items) => items.into_iter().map(sorted).collect(),
        other => other,
    }
}

/// Removes null from the schema of a property that may be omitted instead. Works on the output of schemars.
fn remove_null_alternative(schema: &mut Value) {
    let Value::Object(map) = schema else {
        return;
    };
    if let Some(Value::Array(kinds)) = map.get_mut("type") {
        kinds.retain(|kind| kind != "null");
        if let [only] = &kinds[..] {
            let only = only.clone();
            map.insert("type".to_owned(), only);
        }
        if let Some(Value::Array(values)) = map.get_mut("enum") {
            values.retain(|value| !value.is_null());
        }
    }
    for keyword in ALTERNATIVES {
        let Some(Value::Array(branches)) = map.get_mut(keyword) else {
            continue;
        };
        let earlier_count = branches.len();
        branches.retain(|branch| branch.get("type") != Some(&json!("null")));
        if branches.len() < earlier_count
            && let [only] = &mut branches[..]
            && let Value::Object(only) = only.take()
        {
            map.remove(keyword);
            for (key, value) in only {
                // Keywords beside the alternatives override the keywords of the only branch.
                map.entry(key).or_insert(value);
            }
        }
    }
}

const ALTERNATIVES: [&str; 2] = ["anyOf", "oneOf"];

fn normalize_object(mut map: Map<String, Value>) -> Map<String, Value> {
    map.remove("$schema");
    map.remove("title");
    // A set decodes from a list with repeated items too, so the schema must not demand unique items.
    map.remove("uniqueItems");
    if map.get("default").is_some_and(Value::is_null) {
        map.remove("default");
    }
    drop_width_bounds(&mut map);
    normalize_properties(&mut map);
    for keyword in ["items", "not", "propertyNames", "additionalProperties", "unevaluatedProperties"] {
        if let Some(inner) = map.get_mut(keyword).filter(|inner| inner.is_object()) {
            *inner = normalize(inner.take());
        }
    }
    if map.get("items") == Some(&Value::Bool(true)) {
        map.insert("items".to_owned(), Map::new().into());
    }
    for keyword in ["prefixItems", "allOf", "anyOf", "oneOf"] {
        if let Some(Value::Array(items)) = map.get_mut(keyword) {
            for item in items {
                *item = normalize(item.take());
            }
        }
    }
    for keyword in ["patternProperties", "$defs"] {
        if let Some(Value::Object(schemas)) = map.get_mut(keyword) {
            for inner in schemas.values_mut() {
                *inner = normalize(inner.take());
            }
        }
    }
    // Exclusive alternatives already exclude each other by their required keys, so `anyOf` is enough.
    if let Some(branches) = map.remove("oneOf") {
        map.entry("anyOf").or_insert(branches);
    }
    merge_text_alternatives(&mut map);
    map
}

/// Drops the bounds that schemars adds for an integer's width, and keeps narrower bounds of the type.
fn drop_width_bounds(map: &mut Map<String, Value>) {
    let has_numeric_type = match map.get("type") {
        Some(Value::String(kind)) => is_numeric(kind),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).any(is_numeric),
        _ => false,
    };
    if !has_numeric_type {
        return;
    }
    let Some(Value::String(format)) = map.remove("format") else {
        return;
    };
    let (minimum, maximum) = match format.as_str() {
        "int8" => (json!(i8::MIN), json!(i8::MAX)),
        "int16" => (json!(i16::MIN), json!(i16::MAX)),
        "uint8" => (json!(0), json!(u8::MAX)),
        "uint16" => (json!(0), json!(u16::MAX)),
        "uint" | "uint32" | "uint64" | "uint128" => (json!(0), Value::Null),
        _ => return,
    };
    for (keyword, bound) in [("minimum", minimum), ("maximum", maximum)] {
        if map.get(keyword) == Some(&bound) {
            map.remove(keyword);
        }
    }
}

fn is_numeric(kind: &str) -> bool {
    kind == "integer" || kind == "number"
}

fn normalize_properties(map: &mut Map<String, Value>) {
    let required = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let Some(Value::Object(properties)) = map.get_mut("properties") else {
        return;
    };
    for (name, property) in properties.iter_mut() {
        if !required.iter().any(|known| known == name) {
            remove_null_alternative(property);
        }
        *property = normalize(property.take());
    }
    map.insert("required".to_owned(), required.into());
    if map.get("additionalProperties") == Some(&Value::Bool(true)) {
        map.remove("additionalProperties");
    }
}

/// Merges all alternatives that are texts into one `enum`.
fn merge_text_alternatives(map: &mut Map<String, Value>) {
    let Some(Value::Array(branches)) = map.remove("anyOf") else {
        return;
    };
    let mut values: Vec<Value> = Vec::new();
    let mut lines: Vec<String> = Vec::new();
    let mut enum_position = None;
    let mut other_branches = Vec::new();
    for branch in branches {
        match allowed_texts(&branch) {
            Some(texts) => {
                // Insert the merged branch later at the position of the first text.
                enum_position.get_or_insert(other_branches.len());
                if let (Some(text), [value]) = (description(&branch), &texts[..]) {
                    lines.push(format!(
                        "- {}: {}",
                        value.as_str().unwrap_or_default(),
                        text.replace('\n', " ")
                    ));
                }
                values.extend(texts);
            }
            None => other_branches.push(branch),
        }
    }
    let Some(enum_position) = enum_position else {
        map.insert("anyOf".to_owned(), other_branches.into());
        return;
    };
    let lines = lines.join("\n");
    if other_branches.is_empty() {
        map.insert("type".to_owned(), "string".into());
        map.insert("enum".to_owned(), values.into());
        append_to_description(map, &lines);
    } else {
        let mut branch = Map::new();
        branch.insert("enum".to_owned(), values.into());
        branch.insert("type".to_owned(), "string".into());
        append_to_description(&mut branch, &lines);
        other_branches.insert(enum_position, branch.into());
        map.insert("anyOf".to_owned(), other_branches.into());
    }
}

/// Returns the texts that a schema allows, if it allows nothing else.
fn allowed_texts(schema: &Value) -> Option<Vec<Value>> {
    let map = schema.as_object()?;
    let known_keywords = ["const", "description", "enum", "type"];
    if map.get("type") != Some(&json!("string"))
        || map.keys().any(|key| !known_keywords.contains(&key.as_str()))
    {
        return None;
    }
    match (map.get("const"), map.get("enum")) {
        (Some(value), None) => Some(vec![value.clone()]),
        (None, Some(Value::Array(values))) => Some(values.clone()),
        _ => None,
    }
}

fn description(schema: &Value) -> Option<&str> {
    schema.get("description")?.as_str()
}

fn append_to_description(map: &mut Map<String, Value>, lines: &str) {
    if lines.is_empty() {
        return;
    }
    let text = match map.get("description").and_then(Value::as_str) {
        Some(earlier_text) => format!("{earlier_text}\n{lines}"),
        None => lines.to_owned(),
    };
    map.insert("description".to_owned(), text.into());
}
