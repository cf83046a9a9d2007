//! The cost limits of a schema. The host evaluates schemas that foreign modules declare, so their cost must be bounded.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::schema::SchemaError;

/// Refuses a schema that is too large or too deep to process.
pub(super) fn ensure_readable(schema: &Value) -> Result<(), SchemaError> {
    // Check the depth first: everything after it recurses.
    if deeper_than(schema, MAX_SCHEMA_DEPTH) {
        return Err(SchemaError::TooDeep);
    }
    let bytes = schema.to_string().len();
    if bytes > MAX_SCHEMA_BYTES {
        return Err(SchemaError::TooLarge { bytes });
    }
    Ok(())
}

/// Refuses a schema with too many patterns, or with alternatives that multiply: a chain of thirty definitions
/// that each name the next one twice makes a validator take 2^30 steps for one value. `spelled_out` is the
/// copy of the schema in which each reference is a pointer.
pub(super) fn ensure_bounded(spelled_out: &Value) -> Result<(), SchemaError> {
    CostSurvey { root: spelled_out, weights: HashMap::new(), patterns: 0 }.schema(spelled_out)
}

struct CostSurvey<'s> {
    root: &'s Value,
    /// The number of subschemas that one value is checked against, keyed by the address of the schema. The
    /// entry is 0 while it is being computed, which breaks cycles (the validator has its own guard against
    /// cycles).
    weights: HashMap<*const Value, u64>,
    patterns: usize,
}

impl<'s> CostSurvey<'s> {
    fn schema(&mut self, schema: &'s Value) -> Result<(), SchemaError> {
        let Some(map) = schema.as_object() else {
            return Ok(());
        };
        // An address identifies a schema because the document is borrowed and does not move.
        if self.weight(schema) > MAX_EVALUATIONS {
            return Err(SchemaError::TooComplex);
        }
        self.patterns += usize::from(map.get("pattern").is_some_and(Value::is_string));
        self.patterns += map.get("patternProperties").and_then(Value::as_object).map_or(0, Map::len);
        if self.patterns > MAX_PATTERNS {
            return Err(SchemaError::TooManyPatterns);
        }
        for (keyword, subschema) in map {
            match subschema {
                _ if DATA_KEYWORDS.contains(&keyword.as_str()) => {}
                Value::Object(schemas) if SCHEMAS_BY_NAME.contains(&keyword.as_str()) => {
                    schemas.values().try_for_each(|schema| self.schema(schema))?;
                }
                Value::Object(_) => self.schema(subschema)?,
                Value::Array(list) => list.iter().try_for_each(|schema| self.schema(schema))?,
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        Ok(())
    }

    fn weight(&mut self, schema: &'s Value) -> u64 {
        let Some(map) = schema.as_object() else { return 1 };
        if let Some(weight) = self.weights.get(&std::ptr::from_ref(schema)) {
            return *weight;
        }
        self.weights.insert(schema, 0);
        let mut weight = 1_u64;
        if let Some(target) = referenced(self.root, map) {
            weight = weight.saturating_add(self.weight(target));
        }
        let root = self.root;
        let dynamic = map.get("$dynamicRef").and_then(Value::as_array);
        for target in dynamic.into_iter().flatten().filter_map(|target| root.pointer(target.as_str()?)) {
            weight = weight.saturating_add(self.weight(target));
        }
        for keyword in IN_PLACE {
            match map.get(keyword) {
                Some(Value::Array(list)) => {
                    for branch in list {
                        weight = weight.saturating_add(self.weight(branch));
                    }
                }
                Some(Value::Object(schemas)) if SCHEMAS_BY_NAME.contains(&keyword) => {
                    for branch in schemas.values() {
                        weight = weight.saturating_add(self.weight(branch));
                    }
                }
                Some(branch) => weight = weight.saturating_add(self.weight(branch)),
                None => {}
            }
        }
        self.weights.insert(schema, weight);
        weight
    }
}

/// Returns the schema that a `$ref` names. The reference must be a pointer from the root.
pub(super) fn referenced<'s>(root: &'s Value, map: &Map<String, Value>) -> Option<&'s Value> {
    root.pointer(map.get("$ref")?.as_str()?.strip_prefix('#')?)
}

fn deeper_than(value: &Value, levels: usize) -> bool {
    let Some(remaining) = levels.checked_sub(1) else {
        return true;
    };
    match value {
        Value::Array(items) => items.iter().any(|item| deeper_than(item, remaining)),
        Value::Object(members) => members.values().any(|member| deeper_than(member, remaining)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => false,
    }
}

/// The maximum length of a schema, as JSON: 256 KiB. The compiled schema stays in memory as long as its tool is
/// registered.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;

/// The maximum number of patterns in a schema: 128. A pattern of a few letters can compile to a megabyte.
pub(super) const MAX_PATTERNS: usize = 128;

/// The deepest schema: 100 levels of JSON. The compiler recurses on the stack of the thread that registers the tool.
const MAX_SCHEMA_DEPTH: usize = 100;

/// The maximum number of subschemas that one value is checked against: 4,096.
const MAX_EVALUATIONS: u64 = 4_096;

/// Keywords whose subschemas apply to the same value as the schema itself.
const IN_PLACE: [&str; 8] = ["allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas"];

/// Keywords whose value is an object of schemas. The member names are arbitrary, so none of them is a keyword.
pub(super) const SCHEMAS_BY_NAME: [&str; 5] =
    ["properties", "patternProperties", "$defs", "definitions", "dependentSchemas"];

/// Keywords whose values are data, not schemas.
pub(super) const DATA_KEYWORDS: [&str; 4] = ["enum", "const", "default", "examples"];
