//! Explains with the schema what is wrong with a value, and where in the value.
//!
//! This is not a validator: decoding has already failed, and this module only describes why. It knows only the
//! keywords of the normal form, and reports nothing about a value that it cannot check.

use serde_json::{Map, Number, Value, value::RawValue};

use super::primitive::shown_text;
use crate::{ParamSpec, schema::Definitions};

/// Returns all faults in an argument; empty if the schema finds none.
pub(super) fn explain(raw: &RawValue, spec: &ParamSpec) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(raw.get()) else {
        return Vec::new();
    };
    let mut definitions = Definitions::default();
    let schema = spec.kind.schema(None, &mut definitions).into();
    let mut search = Search { definitions: definitions.into_map(), faults: Vec::new() };
    search.explain_value(&value, &schema, spec.name, MAX_DEPTH);
    search.faults.truncate(MAX_FAULTS);
    search.faults
}

/// The deepest nesting that is searched, including references to references.
const MAX_DEPTH: usize = 64;

/// The maximum number of faults of one argument that are reported.
const MAX_FAULTS: usize = 5;

struct Search {
    definitions: Map<String, Value>,
    faults: Vec<String>,
}

impl Search {
    fn explain_value(&mut self, value: &Value, schema: &Value, path: &str, depth: usize) {
        let (Some(map), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
            return;
        };
        if let Some(target) = self.resolve_reference(map) {
            return self.explain_value(value, &target, path, depth);
        }
        if let Some(Value::Array(branches)) = map.get("anyOf") {
            return self.explain_any_of(value, branches, path, depth);
        }
        if let Some(expected) = wrong_type(value, map) {
            return self.add_fault(path, &format!("{} is not {expected}", show_value(value)));
        }
        if let Some(Value::Array(values)) = map.get("enum")
            && !values.contains(value)
        {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            return self
                .add_fault(path, &format!("{} is not one of {}", show_value(value), values.join(", ")));
        }
        if let Some(only) = map.get("const")
            && only != value
        {
            return self.add_fault(path, &format!("{} is not {only}", show_value(value)));
        }
        match value {
            Value::Object(members) => self.explain_members(members, map, path, depth),
            Value::Array(items) => self.explain_items(items, map, path, depth),
            Value::Number(number) => {
                if let Some(fault) = broken_bound(number, map) {
                    self.add_fault(path, &format!("{} is {fault}", show_value(value)));
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    fn explain_members(
        &mut self,
        members: &Map<String, Value>,
        schema: &Map<String, Value>,
        path: &str,
        depth: usize,
    ) {
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if !members.contains_key(name) {
                self.faults.push(format!("missing required field '{name}' in '{path}'"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = |name: &str| {
            schema
                .get("required")
                .and_then(Value::as_array)
                .is_some_and(|names| names.iter().any(|entry| entry == name))
        };
        for (name, value) in members {
            let member_path = format!("{path}/{name}");
            match (properties.and_then(|properties| properties.get(name)), schema.get("additionalProperties"))
            {
                // Null for an optional property means absence.
                (Some(_), _) if value.is_null() && !required(name) => {}
                (Some(property), _) => self.explain_value(value, property, &member_path, depth),
                (None, Some(Value::Bool(false))) => {
                    let known_fields: Vec<String> =
                        properties.into_iter().flatten().map(|(name, _)| format!("'{name}'")).collect();
                    let known_fields = if known_fields.is_empty() {
                        "there are none".to_owned()
                    } else {
                        known_fields.join(", ")
                    };
                    self.faults.push(format!("unknown field '{name}' in '{path}' (fields: {known_fields})"));
                }
                (None, Some(other)) => self.explain_value(value, other, &member_path, depth),
                (None, None) => {}
            }
        }
    }

    fn explain_items(&mut self, items: &[Value], schema: &Map<String, Value>, path: &str, depth: usize) {
        let min_items = schema.get("minItems").and_then(Value::as_u64);
        let max_items = schema.get("maxItems").and_then(Value::as_u64);
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        match (min_items, max_items) {
            (Some(min_items), Some(max_items)) if min_items == max_items && count != min_items => {
                return self.add_fault(path, &format!("{count} items where there must be {min_items}"));
            }
            (Some(min_items), _) if count < min_items => {
                return self
                    .add_fault(path, &format!("{count} items where there must be at least {min_items}"));
            }
            (_, Some(max_items)) if count > max_items => {
                return self.add_fault(path, &format!("{count} items where there may be {max_items}"));
            }
            _ => {}
        }
        let position_schemas = schema.get("prefixItems").and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            let item_schema = position_schemas
                .and_then(|position_schemas| position_schemas.get(index))
                .or_else(|| schema.get("items"));
            if let Some(item_schema) = item_schema {
                self.explain_value(item, item_schema, &format!("{path}/{index}"), depth);
            }
        }
    }

    /// Reports the faults within the branch that the value was meant for: the only branch with the value's type and
    /// tag.
    fn explain_any_of(&mut self, value: &Value, branches: &[Value], path: &str, depth: usize) {
        let earlier_count = self.faults.len();
        let mut closest_faults = None;
        for branch in branches {
            self.explain_value(value, branch, path, depth);
            // Remove the faults again, because only those of the intended branch are reported.
            let faults = self.faults.split_off(earlier_count);
            if faults.is_empty() {
                return;
            }
            if !self.belongs_to_other_branch(value, branch, depth) {
                match closest_faults {
                    None => closest_faults = Some(faults),
                    Some(_) => {
                        closest_faults = None;
                        break;
                    }
                }
            }
        }
        match closest_faults {
            Some(faults) => self.faults.extend(faults),
            None => self.add_fault(path, &format!("{} fits none of the allowed forms", show_value(value))),
        }
    }

    /// Whether a value belongs to another branch, because it has another type or another tag.
    fn belongs_to_other_branch(&self, value: &Value, branch: &Value, depth: usize) -> bool {
        let Some(map) = branch.as_object() else { return true };
        if let Some(target) = self.resolve_reference(map) {
            return depth == 0 || self.belongs_to_other_branch(value, &target, depth - 1);
        }
        if wrong_type(value, map).is_some() {
            return true;
        }
        let (Some(members), Some(properties)) =
            (value.as_object(), map.get("properties").and_then(Value::as_object))
        else {
            return false;
        };
        let has_wrong_tag = properties
            .iter()
            .any(|(name, property)| property.get("const").is_some_and(|tag| members.get(name) != Some(tag)));
        // A variant is an object whose only key is the variant's name.
        let is_closed = map.get("additionalProperties") == Some(&Value::Bool(false));
        has_wrong_tag || (is_closed && !properties.keys().any(|name| members.contains_key(name)))
    }

    fn resolve_reference(&self, map: &Map<String, Value>) -> Option<Value> {
        let name = map.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        self.definitions.get(name).cloned()
    }

    fn add_fault(&mut self, path: &str, fault: &str) {
        self.faults.push(format!("field '{path}': {fault}"));
    }
}

/// Returns the bound that a number breaks, in words.
fn broken_bound(number: &Number, schema: &Map<String, Value>) -> Option<String> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_number);
    match (bound("minimum"), bound("maximum")) {
        (Some(minimum), _) if is_less(number, minimum) => Some(format!("less than the minimum of {minimum}")),
        (_, Some(maximum)) if is_less(maximum, number) => {
            Some(format!("greater than the maximum of {maximum}"))
        }
        _ => None,
    }
}

fn is_less(left: &Number, right: &Number) -> bool {
    match (left.as_i128(), right.as_i128()) {
        (Some(left), Some(right)) => left < right,
        _ => left.as_f64() < right.as_f64(),
    }
}

/// Returns the expected type in words, if the value has another type.
fn wrong_type(value: &Value, schema: &Map<String, Value>) -> Option<String> {
    let kinds: Vec<&str> = match schema.get("type")? {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    if kinds.iter().any(|kind| has_type(value, kind)) {
        return None;
    }
    Some(kinds.into_iter().map(type_with_article).collect::<Vec<_>>().join(" or "))
}

fn has_type(value: &Value, kind: &str) -> bool {
    match (value, kind) {
        (Value::Null, "null")
        | (Value::Bool(_), "boolean")
        | (Value::Number(_), "number")
        | (Value::String(_), "string")
        | (Value::Array(_), "array")
        | (Value::Object(_), "object") => true,
        // As in JSON Schema, a number without a fraction is an integer.
        (Value::Number(number), "integer") => number.as_f64().is_none_or(|number| number.fract() == 0.0),
        _ => false,
    }
}

fn type_with_article(kind: &str) -> &str {
    match kind {
        "array" => "an array",
        "boolean" => "a boolean",
        "integer" => "an integer",
        "number" => "a number",
        "object" => "an object",
        "string" => "a string",
        other => other,
    }
}

fn show_value(value: &Value) -> String {
    shown_text(&value.to_string())
}
