//! Anthropic's strict tool use. The supported keywords come from Anthropic's guide to structured outputs.

use serde_json::{Map, Value};

use super::{
    DialectFault, MAP, RECURSION, description, keywords_of, nested_pointer, render_branches,
    render_item_schemas,
};

pub(super) fn render(root: &Value) -> Result<Value, DialectFault> {
    schema(root, "")
}

fn schema(value: &Value, pointer: &str) -> Result<Value, DialectFault> {
    let map = keywords_of(value, pointer)?;
    // The normal form uses references only for recursion.
    if map.contains_key("$ref") || map.contains_key("$defs") {
        return Err(DialectFault::new(pointer, RECURSION));
    }
    let mut map = map.clone();
    description::move_to_description(&mut map, &["minimum", "maximum", "minLength", "maxLength", "pattern"]);
    render_branches(&mut map, pointer, schema)?;
    if map.get("type") == Some(&"object".into()) {
        object(&mut map, pointer)?;
    }
    if map.get("type") == Some(&"array".into()) {
        array(&mut map, pointer)?;
    }
    Ok(Value::Object(map))
}

fn object(map: &mut Map<String, Value>, pointer: &str) -> Result<(), DialectFault> {
    if map.get("additionalProperties").is_some_and(|extra_properties| extra_properties != &Value::Bool(false))
    {
        return Err(DialectFault::new(pointer, MAP));
    }
    let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) else {
        return Err(DialectFault::new(pointer, MAP));
    };
    for (name, property) in properties.iter_mut() {
        *property = schema(property, &nested_pointer(pointer, "properties", Some(name)))?;
    }
    map.insert("additionalProperties".to_owned(), false.into());
    Ok(())
}

/// Renders a list. `minItems` may be 0 or 1; other counts go into the description. A tuple becomes a list.
fn array(map: &mut Map<String, Value>, pointer: &str) -> Result<(), DialectFault> {
    let min_items = map.get("minItems").and_then(Value::as_u64);
    // `None` is less than `Some`, so a missing `minItems` is not described.
    let array_bounds: &[&str] = if min_items > Some(1) { &["minItems", "maxItems"] } else { &["maxItems"] };
    description::move_to_description(map, array_bounds);
    render_item_schemas(map, pointer, schema)
}
