//! Gemini's subset of OpenAPI 3: no unions, no references, no constants, `nullable` instead of null.

use serde_json::{Map, Value, json};

use super::{ANYTHING, DialectFault, MAP, RECURSION, description, keywords_of, nested_pointer};

const UNION: &str = "a union of types; one type, or objects distinguished by a field, can be expressed";

pub(super) fn render(root: &Value) -> Result<Value, DialectFault> {
    schema(root, "").map(Value::Object)
}

fn schema(value: &Value, pointer: &str) -> Result<Map<String, Value>, DialectFault> {
    let map = keywords_of(value, pointer)?;
    if map.contains_key("$ref") || map.contains_key("$defs") {
        return Err(DialectFault::new(pointer, RECURSION));
    }
    let mut map = map.clone();
    if let Some(Value::Array(branches)) = map.remove("anyOf") {
        return merge_union(&map, &branches, pointer);
    }
    // Gemini has no list of types, so convert it to a union with one branch per type.
    if let Some(Value::Array(kinds)) = map.get("type").cloned() {
        let branches: Vec<Value> = kinds
            .into_iter()
            .map(|kind| {
                let mut branch = map.clone();
                branch.retain(|key, _| key != "description" && key != "default");
                branch.insert("type".to_owned(), kind);
                branch.into()
            })
            .collect();
        map.retain(|key, _| key == "description" || key == "default");
        return merge_union(&map, &branches, pointer);
    }
    // Gemini has no `const`, so use an `enum` with one value.
    if let Some(value) = map.remove("const") {
        map.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Array(values)) = map.get("enum")
        && !values.iter().all(Value::is_string)
    {
        return Err(DialectFault::new(pointer, "constants that are not texts; texts can be expressed"));
    }
    description::move_to_description(&mut map, &["default"]);
    if map.get("format").is_some_and(|format| format != "date-time") {
        description::move_to_description(&mut map, &["format"]);
    }
    match map.get("type").and_then(Value::as_str) {
        Some("object") => object(&mut map, pointer)?,
        Some("array") => array(&mut map, pointer)?,
        Some("null") | None => return Err(DialectFault::new(pointer, ANYTHING)),
        Some(_) => {}
    }
    Ok(map)
}

fn object(map: &mut Map<String, Value>, pointer: &str) -> Result<(), DialectFault> {
    if map
        .remove("additionalProperties")
        .is_some_and(|extra_properties| extra_properties != Value::Bool(false))
    {
        return Err(DialectFault::new(pointer, MAP));
    }
    let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) else {
        return Err(DialectFault::new(pointer, MAP));
    };
    for (name, property) in properties.iter_mut() {
        *property = schema(property, &nested_pointer(pointer, "properties", Some(name)))?.into();
    }
    Ok(())
}

fn array(map: &mut Map<String, Value>, pointer: &str) -> Result<(), DialectFault> {
    let items = match (map.remove("prefixItems"), map.get("items")) {
        (Some(Value::Array(places)), _) => {
            merge_union(&Map::new(), &places, &nested_pointer(pointer, "prefixItems", None))?
        }
        (_, Some(items)) => schema(items, &nested_pointer(pointer, "items", None))?,
        (_, None) => return Err(DialectFault::new(pointer, ANYTHING)),
    };
    map.insert("items".to_owned(), items.into());
    Ok(())
}

/// Merges the branches of a union into one schema that allows at least the same values. `enclosing` has the
/// union's annotations.
fn merge_union(
    enclosing: &Map<String, Value>,
    branches: &[Value],
    pointer: &str,
) -> Result<Map<String, Value>, DialectFault> {
    let null_type = json!("null");
    let non_null_branches: Vec<&Value> =
        branches.iter().filter(|branch| branch.get("type") != Some(&null_type)).collect();
    let mut rendered = Vec::new();
    for (index, branch) in non_null_branches.iter().enumerate() {
        rendered.push(schema(branch, &nested_pointer(pointer, "anyOf", Some(&index.to_string())))?);
    }
    let mut merged = merge(rendered, pointer)?;
    // `null` branches were filtered out above, so a shorter list means that the value is nullable.
    if non_null_branches.len() < branches.len() {
        merged.insert("nullable".to_owned(), true.into());
    }
    if let Some(text) = enclosing.get("description").and_then(Value::as_str) {
        let inner_description = merged.remove("description");
        merged.insert("description".to_owned(), text.into());
        if let Some(inner_description) = inner_description.as_ref().and_then(Value::as_str) {
            description::append_to_description(&mut merged, inner_description);
        }
    }
    if let Some(default) = enclosing.get("default") {
        merged.insert("default".to_owned(), default.clone());
        description::move_to_description(&mut merged, &["default"]);
    }
    Ok(merged)
}

fn merge(mut branches: Vec<Map<String, Value>>, pointer: &str) -> Result<Map<String, Value>, DialectFault> {
    let Some(first_branch) = branches.first() else {
        return Err(DialectFault::new(pointer, ANYTHING));
    };
    if branches.iter().all(|branch| branch == first_branch) {
        return Ok(branches.swap_remove(0));
    }
    let all_of_kinds = |kinds: &[&str]| {
        branches.iter().all(|branch| {
            branch.get("type").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind))
        })
    };
    if all_of_kinds(&["object"]) {
        merge_objects(&branches, pointer)
    } else if all_of_kinds(&["string"]) {
        Ok(merge_strings(&branches))
    // The type is wider than the branches, which is safe because the registry validates calls
    // against the normal form.
    } else if all_of_kinds(&["integer", "number"]) {
        Ok(Map::from_iter([("type".to_owned(), json!("number"))]))
    } else {
        Err(DialectFault::new(pointer, UNION))
    }
}

/// Merges strings: the values of all branches, or any string if one branch allows any string.
fn merge_strings(branches: &[Map<String, Value>]) -> Map<String, Value> {
    let mut merged = Map::from_iter([("type".to_owned(), json!("string"))]);
    let mut values: Vec<Value> = Vec::new();
    for branch in branches {
        // A branch without `enum` allows any string, so the union does too.
        let Some(Value::Array(enum_values)) = branch.get("enum") else {
            return merged;
        };
        for value in enum_values {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    merged.insert("enum".to_owned(), values.into());
    merged
}

/// Merges objects. The result has the properties of all branches, requires only what every branch requires,
/// and describes which properties belong together.
fn merge_objects(branches: &[Map<String, Value>], pointer: &str) -> Result<Map<String, Value>, DialectFault> {
    let mut properties: Map<String, Value> = Map::new();
    let mut form_lines = Vec::new();
    for branch in branches {
        for (name, property) in properties_of(branch) {
            let merged = match (properties.get(name).and_then(Value::as_object), property.as_object()) {
                (Some(earlier_property), Some(property_schema)) => merge(
                    vec![earlier_property.clone(), property_schema.clone()],
                    &nested_pointer(pointer, "properties", Some(name)),
                )?
                .into(),
                _ => property.clone(),
            };
            properties.insert(name.clone(), merged);
        }
        form_lines.push(describe_branch(branch));
    }
    let required: Vec<&str> = required_of(&branches[0])
        .filter(|name| {
            branches.iter().all(|branch| required_of(branch).any(|required_name| required_name == *name))
        })
        .collect();
    Ok(Map::from_iter([
        ("description".to_owned(), format!("Exactly one of these forms:\n{}", form_lines.join("\n")).into()),
        ("properties".to_owned(), properties.clone().into()),
        ("required".to_owned(), required.into()),
        ("type".to_owned(), "object".into()),
    ]))
}

/// Describes one branch, such as ``- `kind` = "circle", `radius`, optionally `color`: a circle``.
fn describe_branch(branch: &Map<String, Value>) -> String {
    let required: Vec<&str> = required_of(branch).collect();
    let mut parts = Vec::new();
    for name in &required {
        let value = branch.get("properties").and_then(|properties| properties.get(*name));
        match value.and_then(|value| value.get("enum")).and_then(Value::as_array).map(Vec::as_slice) {
            Some([only_value]) => parts.push(format!("`{name}` = {only_value}")),
            _ => parts.push(format!("`{name}`")),
        }
    }
    for (name, _) in properties_of(branch).filter(|(name, _)| !required.contains(&name.as_str())) {
        parts.push(format!("optionally `{name}`"));
    }
    let fields = if parts.is_empty() { "no fields".to_owned() } else { parts.join(", ") };
    match branch.get("description").and_then(Value::as_str) {
        Some(text) => format!("- {fields}: {}", text.replace('\n', " ")),
        None => format!("- {fields}"),
    }
}

fn properties_of(branch: &Map<String, Value>) -> impl Iterator<Item = (&String, &Value)> {
    branch.get("properties").and_then(Value::as_object).into_iter().flatten()
}

fn required_of(branch: &Map<String, Value>) -> impl Iterator<Item = &str> {
    branch.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str)
}
