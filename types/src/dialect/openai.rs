//! OpenAI's strict mode. The supported keywords come from OpenAI's guide to structured outputs.

use serde_json::{Map, Value, json};

use super::{
    DialectFault, MAP, description, keywords_of, nested_pointer, render_branches, render_item_schemas,
};

pub(super) fn render(root: &Value) -> Result<Value, DialectFault> {
    schema(root, "")
}

fn schema(value: &Value, pointer: &str) -> Result<Value, DialectFault> {
    let map = keywords_of(value, pointer)?;
    // A reference has no sibling keywords.
    if let Some(target) = map.get("$ref") {
        return Ok(json!({"$ref": target}));
    }
    let mut map = map.clone();
    description::move_to_description(&mut map, &["default", "minLength", "maxLength"]);
    if let Some(defs) = map.get_mut("$defs").and_then(Value::as_object_mut) {
        for (name, definition) in defs.iter_mut() {
            *definition = schema(definition, &nested_pointer(pointer, "$defs", Some(name)))?;
        }
    }
    render_branches(&mut map, pointer, schema)?;
    if has_type(&map, "object") {
        object(&mut map, pointer)?;
    }
    if has_type(&map, "array") {
        // Strict mode has no tuples, so a tuple becomes a list.
        render_item_schemas(&mut map, pointer, schema)?;
    }
    Ok(Value::Object(map))
}

fn object(map: &mut Map<String, Value>, pointer: &str) -> Result<(), DialectFault> {
    if map.get("additionalProperties").is_some_and(|extra_properties| extra_properties != &Value::Bool(false))
    {
        return Err(DialectFault::new(pointer, MAP));
    }
    let Some(Value::Object(properties)) = map.get("properties").cloned() else {
        return Err(DialectFault::new(pointer, MAP));
    };
    let mut required: Vec<Value> = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut strict_properties = Map::new();
    for (name, property) in &properties {
        let rendered = schema(property, &nested_pointer(pointer, "properties", Some(name)))?;
        // Strict mode requires every property, so make an optional property nullable.
        let is_required = required.iter().any(|required_name| required_name == name);
        strict_properties.insert(name.clone(), if is_required { rendered } else { nullable(rendered) });
        if !is_required {
            required.push(name.clone().into());
        }
    }
    map.insert("properties".to_owned(), strict_properties.into());
    map.insert("required".to_owned(), required.into());
    map.insert("additionalProperties".to_owned(), false.into());
    Ok(())
}

/// Allows null in a schema: in strict mode a model omits an optional argument by setting it to null.
fn nullable(schema: Value) -> Value {
    let absent = json!({"type": "null"});
    let Value::Object(mut map) = schema else {
        return schema;
    };
    if let Some(Value::Array(branches)) = map.get_mut("anyOf") {
        if !branches.contains(&absent) {
            branches.push(absent);
        }
        return Value::Object(map);
    }
    match map.get("type").cloned() {
        Some(Value::String(kind)) if !map.contains_key("const") => {
            map.insert("type".to_owned(), json!([kind, "null"]));
            if let Some(Value::Array(values)) = map.get_mut("enum") {
                // `enum` restricts the types too, so both lists need null.
                values.push(Value::Null);
            }
            Value::Object(map)
        }
        Some(Value::Array(kinds)) if kinds.contains(&"null".into()) => Value::Object(map),
        _ => {
            // The description belongs to the argument, not to one branch.
            let description = map.remove("description");
            let mut union = Map::from_iter([("anyOf".to_owned(), json!([map, absent]))]);
            if let Some(description) = description {
                union.insert("description".to_owned(), description);
            }
            Value::Object(union)
        }
    }
}

fn has_type(map: &Map<String, Value>, kind: &str) -> bool {
    match map.get("type") {
        Some(Value::String(single_kind)) => single_kind == kind,
        Some(Value::Array(kinds)) => kinds.iter().any(|name| name == kind),
        _ => false,
    }
}
