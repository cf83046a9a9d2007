//! OpenAI's strict mode, as its guide to structured outputs lists what it supports.

use serde_json::{Map, Value, json};

use super::{ANYTHING, MAP, ProfileFault, allows_everything, below, items_of_any_place, notes};

pub(super) fn render(root: &Value) -> Result<Value, ProfileFault> {
    schema(root, "")
}

fn schema(value: &Value, at: &str) -> Result<Value, ProfileFault> {
    if allows_everything(value) {
        return Err(ProfileFault::at(at, ANYTHING));
    }
    let Some(map) = value.as_object() else {
        return Err(ProfileFault::at(at, "a schema that allows nothing"));
    };
    // A reference has no sibling keywords.
    if let Some(target) = map.get("$ref") {
        return Ok(json!({"$ref": target}));
    }
    let mut map = map.clone();
    notes::move_to_description(&mut map, &["default", "minLength", "maxLength"]);
    if let Some(defs) = map.get_mut("$defs").and_then(Value::as_object_mut) {
        for (name, definition) in defs.iter_mut() {
            *definition = schema(definition, &below(at, "$defs", Some(name)))?;
        }
    }
    if let Some(branches) = map.get_mut("anyOf").and_then(Value::as_array_mut) {
        for (index, branch) in branches.iter_mut().enumerate() {
            *branch = schema(branch, &below(at, "anyOf", Some(&index.to_string())))?;
        }
    }
    if is(&map, "object") {
        object(&mut map, at)?;
    }
    if is(&map, "array") {
        // A tuple is not supported: it becomes a list.
        items_of_any_place(&mut map, at, schema)?;
    }
    Ok(Value::Object(map))
}

fn object(map: &mut Map<String, Value>, at: &str) -> Result<(), ProfileFault> {
    if map.get("additionalProperties").is_some_and(|extra| extra != &Value::Bool(false)) {
        return Err(ProfileFault::at(at, MAP));
    }
    let Some(Value::Object(properties)) = map.get("properties").cloned() else {
        return Err(ProfileFault::at(at, MAP));
    };
    let mut required: Vec<Value> = map.get("required").and_then(Value::as_array).cloned().unwrap_or_default();
    let mut strict = Map::new();
    for (name, property) in &properties {
        let rendered = schema(property, &below(at, "properties", Some(name)))?;
        // Strict mode requires every property: an optional one may be null instead.
        let must = required.iter().any(|known| known == name);
        strict.insert(name.clone(), if must { rendered } else { nullable(rendered) });
        if !must {
            required.push(name.clone().into());
        }
    }
    map.insert("properties".to_owned(), strict.into());
    map.insert("required".to_owned(), required.into());
    map.insert("additionalProperties".to_owned(), false.into());
    Ok(())
}

/// Allows null in a schema: a model omits an optional argument that way.
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
                // `enum` restricts the type list too, so null must be in both.
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

fn is(map: &Map<String, Value>, kind: &str) -> bool {
    match map.get("type") {
        Some(Value::String(only)) => only == kind,
        Some(Value::Array(kinds)) => kinds.iter().any(|one| one == kind),
        _ => false,
    }
}
