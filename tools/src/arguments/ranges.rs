//! Number formats, written as ranges.
//!
//! Schema generators write `{"type": "integer", "format": "uint32"}` for a `u32`. JSON Schema ignores the format. With
//! the range added, a number that the tool could not decode is refused before the tool runs.

use serde_json::{Map, Value, json};

/// Adds `minimum` and `maximum` for each format, where the schema does not set them itself.
pub(super) fn spell_out_formats(schema: &mut Value) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(spell_out_formats),
        Value::Object(map) => {
            if let Some((minimum, maximum)) = range(map) {
                map.entry("minimum").or_insert(minimum);
                map.entry("maximum").or_insert(maximum);
            }
            // Values under `const`, `enum` and `default` are data, not schemas.
            let schemas = map
                .iter_mut()
                .filter(|(keyword, _)| !["const", "enum", "default"].contains(&keyword.as_str()));
            schemas.for_each(|(_, subschema)| spell_out_formats(subschema));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn range(map: &Map<String, Value>) -> Option<(Value, Value)> {
    let is_integer = match map.get("type")? {
        Value::Array(types) => types.iter().any(|name| name == "integer"),
        name => name == "integer",
    };
    if !is_integer || map.contains_key("exclusiveMinimum") || map.contains_key("exclusiveMaximum") {
        return None;
    }
    Some(match map.get("format")?.as_str()? {
        "int8" => (json!(i8::MIN), json!(i8::MAX)),
        "int16" => (json!(i16::MIN), json!(i16::MAX)),
        "int32" => (json!(i32::MIN), json!(i32::MAX)),
        "int64" | "int" => (json!(i64::MIN), json!(i64::MAX)),
        "uint8" => (json!(0), json!(u8::MAX)),
        "uint16" => (json!(0), json!(u16::MAX)),
        "uint32" => (json!(0), json!(u32::MAX)),
        "uint64" | "uint" => (json!(0), json!(u64::MAX)),
        _ => return None,
    })
}
