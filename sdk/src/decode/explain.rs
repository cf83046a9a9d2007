//! Explains by the schema what is wrong with a value, and where in it.
//!
//! Not a validator: decoding has already failed, and this only describes why. It knows the keywords of the
//! normal form and accepts a value that it cannot judge.

use serde_json::{Map, Number, Value, value::RawValue};

use super::primitive::shown_text;
use crate::{ParamSpec, schema::Definitions};

/// All mistakes in an argument; empty if the schema finds none.
pub(super) fn explain(raw: &RawValue, spec: &ParamSpec) -> Vec<String> {
    let Ok(value) = serde_json::from_str::<Value>(raw.get()) else {
        return Vec::new();
    };
    let mut definitions = Definitions::default();
    let schema = spec.kind.schema(None, &mut definitions).into();
    let mut search = Search { definitions: definitions.into_map(), found: Vec::new() };
    search.value(&value, &schema, spec.name, MAX_DEPTH);
    search.found.truncate(MAX_FOUND);
    search.found
}

/// The deepest nesting that is searched, including references to references.
const MAX_DEPTH: usize = 64;

/// The most mistakes of one argument that are reported.
const MAX_FOUND: usize = 5;

struct Search {
    definitions: Map<String, Value>,
    found: Vec<String>,
}

impl Search {
    fn value(&mut self, value: &Value, schema: &Value, place: &str, depth: usize) {
        let (Some(map), Some(depth)) = (schema.as_object(), depth.checked_sub(1)) else {
            return;
        };
        if let Some(target) = self.referenced(map) {
            return self.value(value, &target, place, depth);
        }
        if let Some(Value::Array(branches)) = map.get("anyOf") {
            return self.any_of(value, branches, place, depth);
        }
        if let Some(expected) = wrong_type(value, map) {
            return self.fault(place, &format!("{} is not {expected}", show(value)));
        }
        if let Some(Value::Array(values)) = map.get("enum")
            && !values.contains(value)
        {
            let values: Vec<String> = values.iter().map(ToString::to_string).collect();
            return self.fault(place, &format!("{} is not one of {}", show(value), values.join(", ")));
        }
        if let Some(only) = map.get("const")
            && only != value
        {
            return self.fault(place, &format!("{} is not {only}", show(value)));
        }
        match value {
            Value::Object(members) => self.members(members, map, place, depth),
            Value::Array(items) => self.items(items, map, place, depth),
            Value::Number(number) => {
                if let Some(problem) = beyond(number, map) {
                    self.fault(place, &format!("{} is {problem}", show(value)));
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => {}
        }
    }

    fn members(
        &mut self,
        members: &Map<String, Value>,
        schema: &Map<String, Value>,
        place: &str,
        depth: usize,
    ) {
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            let name = name.as_str().unwrap_or_default();
            if !members.contains_key(name) {
                self.found.push(format!("missing required field '{name}' in '{place}'"));
            }
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = |name: &str| {
            schema
                .get("required")
                .and_then(Value::as_array)
                .is_some_and(|all| all.iter().any(|one| one == name))
        };
        for (name, value) in members {
            let inner = format!("{place}/{name}");
            match (properties.and_then(|known| known.get(name)), schema.get("additionalProperties")) {
                (Some(_), _) if value.is_null() && !required(name) => {}
                (Some(property), _) => self.value(value, property, &inner, depth),
                (None, Some(Value::Bool(false))) => {
                    let known: Vec<String> =
                        properties.into_iter().flatten().map(|(name, _)| format!("'{name}'")).collect();
                    let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
                    self.found.push(format!("unknown field '{name}' in '{place}' (fields: {known})"));
                }
                (None, Some(other)) => self.value(value, other, &inner, depth),
                (None, None) => {}
            }
        }
    }

    fn items(&mut self, items: &[Value], schema: &Map<String, Value>, place: &str, depth: usize) {
        let least = schema.get("minItems").and_then(Value::as_u64);
        let most = schema.get("maxItems").and_then(Value::as_u64);
        let count = u64::try_from(items.len()).unwrap_or(u64::MAX);
        match (least, most) {
            (Some(least), Some(most)) if least == most && count != least => {
                return self.fault(place, &format!("{count} items where there must be {least}"));
            }
            (Some(least), _) if count < least => {
                return self.fault(place, &format!("{count} items where there must be at least {least}"));
            }
            (_, Some(most)) if count > most => {
                return self.fault(place, &format!("{count} items where there may be {most}"));
            }
            _ => {}
        }
        let places = schema.get("prefixItems").and_then(Value::as_array);
        for (index, item) in items.iter().enumerate() {
            let own = places.and_then(|places| places.get(index)).or_else(|| schema.get("items"));
            if let Some(own) = own {
                self.value(item, own, &format!("{place}/{index}"), depth);
            }
        }
    }

    /// The mistakes within the intended branch: the only branch that the value does not fail as a whole.
    fn any_of(&mut self, value: &Value, branches: &[Value], place: &str, depth: usize) {
        let before = self.found.len();
        let mut meant = None;
        for branch in branches {
            self.value(value, branch, place, depth);
            let faults = self.found.split_off(before);
            if faults.is_empty() {
                return;
            }
            if !self.is_other_kind(value, branch, depth) {
                match meant {
                    None => meant = Some(faults),
                    Some(_) => {
                        meant = None;
                        break;
                    }
                }
            }
        }
        match meant {
            Some(faults) => self.found.extend(faults),
            None => self.fault(place, &format!("{} fits none of the allowed forms", show(value))),
        }
    }

    /// Whether a value belongs to another branch: it has another type or another tag.
    fn is_other_kind(&self, value: &Value, branch: &Value, depth: usize) -> bool {
        let Some(map) = branch.as_object() else { return true };
        if let Some(target) = self.referenced(map) {
            return depth == 0 || self.is_other_kind(value, &target, depth - 1);
        }
        if wrong_type(value, map).is_some() {
            return true;
        }
        let (Some(members), Some(properties)) =
            (value.as_object(), map.get("properties").and_then(Value::as_object))
        else {
            return false;
        };
        let wrong_tag = properties
            .iter()
            .any(|(name, property)| property.get("const").is_some_and(|tag| members.get(name) != Some(tag)));
        // A variant given as an object whose only key names it.
        let closed = map.get("additionalProperties") == Some(&Value::Bool(false));
        wrong_tag || (closed && !properties.keys().any(|name| members.contains_key(name)))
    }

    fn referenced(&self, map: &Map<String, Value>) -> Option<Value> {
        let name = map.get("$ref")?.as_str()?.strip_prefix("#/$defs/")?;
        self.definitions.get(name).cloned()
    }

    fn fault(&mut self, place: &str, problem: &str) {
        self.found.push(format!("field '{place}': {problem}"));
    }
}

/// The bound that a number breaks.
fn beyond(number: &Number, schema: &Map<String, Value>) -> Option<String> {
    let bound = |keyword: &str| schema.get(keyword).and_then(Value::as_number);
    match (bound("minimum"), bound("maximum")) {
        (Some(least), _) if is_below(number, least) => Some(format!("less than the minimum of {least}")),
        (_, Some(most)) if is_below(most, number) => Some(format!("greater than the maximum of {most}")),
        _ => None,
    }
}

fn is_below(this: &Number, other: &Number) -> bool {
    match (this.as_i128(), other.as_i128()) {
        (Some(this), Some(other)) => this < other,
        _ => this.as_f64() < other.as_f64(),
    }
}

/// The expected type, if the value has another one.
fn wrong_type(value: &Value, schema: &Map<String, Value>) -> Option<String> {
    let kinds: Vec<&str> = match schema.get("type")? {
        Value::String(kind) => vec![kind.as_str()],
        Value::Array(kinds) => kinds.iter().filter_map(Value::as_str).collect(),
        _ => return None,
    };
    if kinds.iter().any(|kind| is(value, kind)) {
        return None;
    }
    Some(kinds.into_iter().map(named).collect::<Vec<_>>().join(" or "))
}

fn is(value: &Value, kind: &str) -> bool {
    match (value, kind) {
        (Value::Null, "null")
        | (Value::Bool(_), "boolean")
        | (Value::Number(_), "number")
        | (Value::String(_), "string")
        | (Value::Array(_), "array")
        | (Value::Object(_), "object") => true,
        (Value::Number(number), "integer") => number.as_f64().is_none_or(|number| number.fract() == 0.0),
        _ => false,
    }
}

fn named(kind: &str) -> &str {
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

fn show(value: &Value) -> String {
    shown_text(&value.to_string())
}
