//! Gemini's subset of OpenAPI 3: no unions, no references, no constants, `nullable` instead of null.

use serde_json::{Map, Value, json};

use super::{ANYTHING, MAP, ProfileFault, RECURSION, allows_everything, below, notes};

const UNION: &str =
    "a choice between kinds of values; one kind, or objects told apart by a field, have a place";

pub(super) fn render(root: &Value) -> Result<Value, ProfileFault> {
    schema(root, "").map(Value::Object)
}

fn schema(value: &Value, at: &str) -> Result<Map<String, Value>, ProfileFault> {
    if allows_everything(value) {
        return Err(ProfileFault::at(at, ANYTHING));
    }
    let Some(map) = value.as_object() else {
        return Err(ProfileFault::at(at, "a schema that allows nothing"));
    };
    if map.contains_key("$ref") || map.contains_key("$defs") {
        return Err(ProfileFault::at(at, RECURSION));
    }
    let mut map = map.clone();
    if let Some(Value::Array(branches)) = map.remove("anyOf") {
        return union(&map, &branches, at);
    }
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
        return union(&map, &branches, at);
    }
    if let Some(value) = map.remove("const") {
        map.insert("enum".to_owned(), json!([value]));
    }
    if let Some(Value::Array(values)) = map.get("enum")
        && !values.iter().all(Value::is_string)
    {
        return Err(ProfileFault::at(at, "constants that are no texts; texts have a place"));
    }
    notes::move_to_description(&mut map, &["default"]);
    if map.get("format").is_some_and(|format| format != "date-time") {
        notes::move_to_description(&mut map, &["format"]);
    }
    match map.get("type").and_then(Value::as_str) {
        Some("object") => object(&mut map, at)?,
        Some("array") => array(&mut map, at)?,
        Some("null") | None => return Err(ProfileFault::at(at, ANYTHING)),
        Some(_) => {}
    }
    Ok(map)
}

fn object(map: &mut Map<String, Value>, at: &str) -> Result<(), ProfileFault> {
    if map.remove("additionalProperties").is_some_and(|extra| extra != Value::Bool(false)) {
        return Err(ProfileFault::at(at, MAP));
    }
    let Some(properties) = map.get_mut("properties").and_then(Value::as_object_mut) else {
        return Err(ProfileFault::at(at, MAP));
    };
    for (name, property) in properties.iter_mut() {
        *property = schema(property, &below(at, "properties", Some(name)))?.into();
    }
    Ok(())
}

fn array(map: &mut Map<String, Value>, at: &str) -> Result<(), ProfileFault> {
    let items = match (map.remove("prefixItems"), map.get("items")) {
        (Some(Value::Array(places)), _) => union(&Map::new(), &places, &below(at, "prefixItems", None))?,
        (_, Some(items)) => schema(items, &below(at, "items", None))?,
        (_, None) => return Err(ProfileFault::at(at, ANYTHING)),
    };
    map.insert("items".to_owned(), items.into());
    Ok(())
}

/// A schema that allows at least what the branches allow. `around` holds the union's annotations.
fn union(
    around: &Map<String, Value>,
    branches: &[Value],
    at: &str,
) -> Result<Map<String, Value>, ProfileFault> {
    let null = json!("null");
    let some: Vec<&Value> = branches.iter().filter(|branch| branch.get("type") != Some(&null)).collect();
    let mut rendered = Vec::new();
    for (index, branch) in some.iter().enumerate() {
        rendered.push(schema(branch, &below(at, "anyOf", Some(&index.to_string())))?);
    }
    let mut merged = merge(rendered, at)?;
    // A branch `null` was filtered out above.
    if some.len() < branches.len() {
        merged.insert("nullable".to_owned(), true.into());
    }
    if let Some(text) = around.get("description").and_then(Value::as_str) {
        let inner = merged.remove("description");
        merged.insert("description".to_owned(), text.into());
        if let Some(inner) = inner.as_ref().and_then(Value::as_str) {
            notes::add(&mut merged, inner);
        }
    }
    if let Some(default) = around.get("default") {
        merged.insert("default".to_owned(), default.clone());
        notes::move_to_description(&mut merged, &["default"]);
    }
    Ok(merged)
}

fn merge(mut branches: Vec<Map<String, Value>>, at: &str) -> Result<Map<String, Value>, ProfileFault> {
    let Some(first) = branches.first() else {
        return Err(ProfileFault::at(at, ANYTHING));
    };
    if branches.iter().all(|branch| branch == first) {
        return Ok(branches.swap_remove(0));
    }
    let all = |kinds: &[&str]| {
        branches.iter().all(|branch| {
            branch.get("type").and_then(Value::as_str).is_some_and(|kind| kinds.contains(&kind))
        })
    };
    if all(&["object"]) {
        objects(&branches, at)
    } else if all(&["string"]) {
        Ok(strings(&branches))
    // Wider than the branches, never narrower: a call is checked against the normal form.
    } else if all(&["integer", "number"]) {
        Ok(Map::from_iter([("type".to_owned(), json!("number"))]))
    } else {
        Err(ProfileFault::at(at, UNION))
    }
}

/// Merges strings: the values of all branches, or any string if a branch allows any.
fn strings(branches: &[Map<String, Value>]) -> Map<String, Value> {
    let mut merged = Map::from_iter([("type".to_owned(), json!("string"))]);
    let mut values: Vec<Value> = Vec::new();
    for branch in branches {
        // This branch allows any string, so the union does too.
        let Some(Value::Array(known)) = branch.get("enum") else {
            return merged;
        };
        for value in known {
            if !values.contains(value) {
                values.push(value.clone());
            }
        }
    }
    merged.insert("enum".to_owned(), values.into());
    merged
}

/// Merges objects: the properties of all, required if required in all, and a description of which go
/// together.
fn objects(branches: &[Map<String, Value>], at: &str) -> Result<Map<String, Value>, ProfileFault> {
    let mut properties: Map<String, Value> = Map::new();
    let mut forms = Vec::new();
    for branch in branches {
        for (name, property) in properties_of(branch) {
            let merged = match (properties.get(name).and_then(Value::as_object), property.as_object()) {
                (Some(known), Some(new)) => {
                    merge(vec![known.clone(), new.clone()], &below(at, "properties", Some(name)))?.into()
                }
                _ => property.clone(),
            };
            properties.insert(name.clone(), merged);
        }
        forms.push(form(branch));
    }
    let required: Vec<&str> = required_of(&branches[0])
        .filter(|name| branches.iter().all(|branch| required_of(branch).any(|other| other == *name)))
        .collect();
    Ok(Map::from_iter([
        ("description".to_owned(), format!("Exactly one of these forms:\n{}", forms.join("\n")).into()),
        ("properties".to_owned(), properties.clone().into()),
        ("required".to_owned(), required.into()),
        ("type".to_owned(), "object".into()),
    ]))
}

/// The description of one branch, such as ``- `kind` = "circle", `radius`, optionally `color`: a circle``.
fn form(branch: &Map<String, Value>) -> String {
    let required: Vec<&str> = required_of(branch).collect();
    let mut parts = Vec::new();
    for name in &required {
        let value = branch.get("properties").and_then(|properties| properties.get(*name));
        match value.and_then(|value| value.get("enum")).and_then(Value::as_array).map(Vec::as_slice) {
            Some([only]) => parts.push(format!("`{name}` = {only}")),
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
