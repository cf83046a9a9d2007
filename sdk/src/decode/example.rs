//! Arguments that would be right, for a model that did not find them by itself.

use portcullis_types::RoleKind;
use serde_json::{Map, Value, json};

use crate::ToolSpec;

/// The least arguments that the schema takes, as JSON.
pub(super) fn example(spec: &ToolSpec) -> String {
    let schema = spec.parameters();
    let root = schema.as_value();
    let mut arguments = value(root, root, MAX_DEPTH);
    if let Value::Object(arguments) = &mut arguments {
        for param in spec.params {
            if let (Some(role), Some(argument)) = (param.role, arguments.get_mut(param.name)) {
                *argument = json!(match role {
                    RoleKind::Path(_) => "/shared/file.txt",
                    RoleKind::Url => "https://example.com/",
                    RoleKind::Command => "ls",
                });
            }
        }
    }
    arguments.to_string()
}

/// How deep an example goes; a type that contains itself needs an end.
const MAX_DEPTH: usize = 8;

fn value(schema: &Value, root: &Value, depth: usize) -> Value {
    let (Some(map), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
        return Value::Null;
    };
    if let Some(known) = map.get("default").or_else(|| map.get("const")) {
        return known.clone();
    }
    if let Some(first) = map.get("enum").and_then(Value::as_array).and_then(|values| values.first()) {
        return first.clone();
    }
    if let Some(first) = map.get("anyOf").and_then(Value::as_array).and_then(|branches| branches.first()) {
        return value(first, root, depth);
    }
    if let Some(target) = map.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'))
    {
        return root.pointer(target).map_or(Value::Null, |target| value(target, root, depth));
    }
    let kind = match map.get("type") {
        Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
        kind => kind.and_then(Value::as_str),
    };
    match kind {
        Some("boolean") => json!(true),
        Some("integer") => map.get("minimum").or_else(|| map.get("maximum")).cloned().unwrap_or(json!(1)),
        Some("number") => json!(1.5),
        Some("string") if map.contains_key("maxLength") => json!("x"),
        Some("string") => json!("text"),
        Some("array") => array(map, root, depth),
        Some("object") => object(map, root, depth),
        _ => Value::Null,
    }
}

fn array(map: &Map<String, Value>, root: &Value, depth: usize) -> Value {
    if let Some(Value::Array(places)) = map.get("prefixItems") {
        return places.iter().map(|place| value(place, root, depth)).collect();
    }
    let count = map.get("minItems").and_then(Value::as_u64).unwrap_or(1).min(4);
    (0..count).map(|_| map.get("items").map_or(Value::Null, |items| value(items, root, depth))).collect()
}

fn object(map: &Map<String, Value>, root: &Value, depth: usize) -> Value {
    let mut members = Map::new();
    for name in map.get("required").and_then(Value::as_array).into_iter().flatten() {
        let Some(name) = name.as_str() else { continue };
        let property = map.get("properties").and_then(|properties| properties.get(name));
        members
            .insert(name.to_owned(), property.map_or(Value::Null, |property| value(property, root, depth)));
    }
    if let Some(values @ Value::Object(_)) = map.get("additionalProperties") {
        members.insert("key".to_owned(), value(values, root, depth));
    }
    members.into()
}
