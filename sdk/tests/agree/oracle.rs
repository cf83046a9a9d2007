//! The oracle: an independent validator of the schema.

use portcullis_sdk::serde_json::{Map, Value};

/// Whether arguments fit a schema, if null for an optional property counts as absence.
pub(crate) fn fits(schema: &Value, arguments: &Value) -> bool {
    jsonschema::is_valid(schema, &without_nulls(arguments, schema, schema))
}

fn without_nulls(value: &Value, schema: &Value, root: &Value) -> Value {
    if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
        let target = root.pointer(target.trim_start_matches('#')).expect("within the schema");
        return without_nulls(value, target, root);
    }
    if let Some(Value::Array(branches)) = schema.get("anyOf") {
        return branches
            .iter()
            .map(|branch| (branch, without_nulls(value, branch, root)))
            .find(|(branch, pruned)| jsonschema::is_valid(&with_definitions(branch, root), pruned))
            .map_or_else(|| value.clone(), |(_, pruned)| pruned);
    }
    match value {
        Value::Object(members) => members
            .iter()
            .filter_map(|(name, member)| {
                let property = schema.get("properties").and_then(|properties| properties.get(name));
                match property {
                    Some(property) => {
                        let is_absent = member.is_null()
                            && !is_required(schema, name)
                            && !jsonschema::is_valid(&with_definitions(property, root), member);
                        (!is_absent).then(|| (name.clone(), without_nulls(member, property, root)))
                    }
                    None => {
                        let member_schema = schema.get("additionalProperties").unwrap_or(&Value::Bool(true));
                        Some((name.clone(), without_nulls(member, member_schema, root)))
                    }
                }
            })
            .collect::<Map<_, _>>()
            .into(),
        Value::Array(items) => {
            let item_schemas = schema.get("prefixItems").and_then(Value::as_array);
            items
                .iter()
                .enumerate()
                .map(|(index, item)| {
                    let item_schema = item_schemas
                        .and_then(|item_schemas| item_schemas.get(index))
                        .or_else(|| schema.get("items"));
                    item_schema
                        .map_or_else(|| item.clone(), |item_schema| without_nulls(item, item_schema, root))
                })
                .collect()
        }
        other => other.clone(),
    }
}

fn is_required(schema: &Value, name: &str) -> bool {
    schema
        .get("required")
        .and_then(Value::as_array)
        .is_some_and(|names| names.iter().any(|entry| entry == name))
}

fn with_definitions(schema: &Value, root: &Value) -> Value {
    match (schema, root.get("$defs")) {
        (Value::Object(map), Some(definitions)) => {
            let mut map = map.clone();
            map.insert("$defs".to_owned(), definitions.clone());
            map.into()
        }
        _ => schema.clone(),
    }
}
