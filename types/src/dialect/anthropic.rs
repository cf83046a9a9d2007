//! Anthropic's strict tool use, as its guide to structured outputs lists what it supports.

use serde_json::{Map, Value};

use super::{ANYTHING, MAP, ProfileFault, RECURSION, allows_everything, below, items_of_any_place, notes};

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
    // The normal form uses references only for recursion.
    if map.contains_key("$ref") || map.contains_key("$defs") {
        return Err(ProfileFault::at(at, RECURSION));
    }
    let mut map = map.clone();
    notes::move_to_description(&mut map, &["minimum", "maximum", "minLength", "maxLength", "pattern"]);
    if let Some(branches) = map.get_mut("anyOf").and_then(Value::as_array_mut) {
        for (index, branch) in branches.iter_mut().enumerate() {
            *branch = schema(branch, &below(at, "anyOf", Some(&index.to_string())))?;
        }
    }
    if map.get("type") == Some(&"object".into()) {
        object(&mut map, at)?;
    }
    if map.get("type") == Some(&"array".into()) {
        array(&mut map, at)?;
    }
    Ok(Value::Object(map))
}

fn object(map: &mut Map<String, Value>, at: &str) -> Result<(), ProfileFault> {
    if map.get("additionalProperties").is_some_and(|extra| extra != &Value::Bool(false)) {
        return Err(ProfileFault::at(at, MAP));
    }
    let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) else {
        return Err(ProfileFault::at(at, MAP));
    };
    for (name, property) in properties.iter_mut() {
        *property = schema(property, &below(at, "properties", Some(name)))?;
    }
    map.insert("additionalProperties".to_owned(), false.into());
    Ok(())
}

/// `minItems` may be 0 or 1; other counts go into the description. A tuple becomes a list.
fn array(map: &mut Map<String, Value>, at: &str) -> Result<(), ProfileFault> {
    let least = map.get("minItems").and_then(Value::as_u64);
    // `None` is less than `Some`: without `minItems` there is none to tell.
    let array_bounds: &[&str] = if least > Some(1) { &["minItems", "maxItems"] } else { &["maxItems"] };
    notes::move_to_description(map, array_bounds);
    items_of_any_place(map, at, schema)
}
