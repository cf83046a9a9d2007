//! The view of a schema that the repairs need: the types that a value may have, and the schema of its
//! content.
//!
//! The view does not validate. In doubt it answers "anything", which leaves the value unchanged. A repaired
//! value is validated against the real schema afterwards.

use serde_json::{Map, Value};

use super::bounds::referenced;

/// A set of JSON types. `FRACTION` is a number that is not an integer. The `number` of JSON Schema includes both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Types(u8);

impl Types {
    pub(super) const NONE: Self = Self(0);
    pub(super) const NULL: Self = Self(1);
    pub(super) const BOOLEAN: Self = Self(2);
    pub(super) const INTEGER: Self = Self(4);
    pub(super) const FRACTION: Self = Self(8);
    pub(super) const STRING: Self = Self(16);
    pub(super) const ARRAY: Self = Self(32);
    pub(super) const OBJECT: Self = Self(64);
    pub(super) const ALL: Self = Self(127);

    pub(super) const fn intersection(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) const fn union(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether the sets share a type.
    pub(super) fn intersects(self, other: Self) -> bool {
        self.intersection(other) != Self::NONE
    }

    /// Whether these types allow integers but no other numbers.
    pub(super) fn are_whole_numbers_only(self) -> bool {
        self.intersects(Self::INTEGER) && !self.intersects(Self::FRACTION)
    }

    pub(super) fn from_value(value: &Value) -> Self {
        match value {
            Value::Null => Self::NULL,
            Value::Bool(_) => Self::BOOLEAN,
            Value::Number(number) if number.as_f64().is_some_and(|n| n.fract() != 0.0) => Self::FRACTION,
            Value::Number(_) => Self::INTEGER,
            Value::String(_) => Self::STRING,
            Value::Array(_) => Self::ARRAY,
            Value::Object(_) => Self::OBJECT,
        }
    }

    fn from_name(name: &Value) -> Self {
        match name.as_str() {
            Some("null") => Self::NULL,
            Some("boolean") => Self::BOOLEAN,
            Some("integer") => Self::INTEGER,
            Some("number") => Self::INTEGER.union(Self::FRACTION),
            Some("string") => Self::STRING,
            Some("array") => Self::ARRAY,
            Some("object") => Self::OBJECT,
            // In doubt, any type is possible.
            _ => Self::ALL,
        }
    }
}

/// A schema document, whose parts may refer to each other.
#[derive(Debug, Clone, Copy)]
pub(super) struct SchemaView<'s> {
    root: &'s Value,
}

impl<'s> SchemaView<'s> {
    pub(super) fn new(root: &'s Value) -> Self {
        Self { root }
    }

    /// The types that a value of this schema may have.
    pub(super) fn types(self, schema: &'s Value) -> Types {
        self.types_within(schema, &mut { MAX_STEPS })
    }

    fn types_within(self, schema: &'s Value, steps: &mut u16) -> Types {
        let Some(map) = schema.as_object() else {
            return Types::ALL;
        };
        // Out of steps: answer that any type is possible.
        let Some(remaining_steps) = steps.checked_sub(1) else {
            return Types::ALL;
        };
        *steps = remaining_steps;
        let mut types = match map.get("type") {
            Some(Value::Array(names)) => union(names.iter().map(Types::from_name)),
            Some(name) => Types::from_name(name),
            None => Types::ALL,
        };
        if let Some(values) = map.get("enum").and_then(Value::as_array) {
            types = types.intersection(union(values.iter().map(Types::from_value)));
        }
        if let Some(value) = map.get("const") {
            types = types.intersection(Types::from_value(value));
        }
        if let Some(target) = referenced(self.root, map) {
            types = types.intersection(self.types_within(target, steps));
        }
        for part in subschemas(map, "allOf") {
            types = types.intersection(self.types_within(part, steps));
        }
        for keyword in ["anyOf", "oneOf"] {
            if map.contains_key(keyword) {
                let branches = subschemas(map, keyword).iter();
                types = types.intersection(union(branches.map(|branch| self.types_within(branch, steps))));
            }
        }
        types
    }

    /// The object schema that describes the content of a value. `None` if several schemas could describe it.
    pub(super) fn describing(self, schema: &'s Value, value: &Value) -> Option<&'s Map<String, Value>> {
        self.describing_within(schema, value, &mut { MAX_STEPS })
    }

    fn describing_within(
        self,
        schema: &'s Value,
        value: &Value,
        steps: &mut u16,
    ) -> Option<&'s Map<String, Value>> {
        let map = schema.as_object()?;
        *steps = steps.checked_sub(1)?;
        if DESCRIBING.iter().any(|keyword| map.contains_key(*keyword)) {
            return Some(map);
        }
        if let Some(target) = referenced(self.root, map) {
            return self.describing_within(target, value, steps);
        }
        for keyword in ["anyOf", "oneOf", "allOf"] {
            let mut fitting =
                subschemas(map, keyword).iter().filter(|branch| self.may_describe(branch, value));
            if let Some(branch) = fitting.next() {
                // If a second branch also matches, leave the value unchanged.
                return if fitting.next().is_none() {
                    self.describing_within(branch, value, steps)
                } else {
                    None
                };
            }
        }
        None
    }

    /// Whether the model may have meant this branch: the branch accepts the value's type, and its constants
    /// (the tags of an enum) equal the value's.
    fn may_describe(self, branch: &'s Value, value: &Value) -> bool {
        if !self.types(branch).intersects(Types::from_value(value)) {
            return false;
        }
        let (Some(properties), Some(object)) =
            (branch.get("properties").and_then(Value::as_object), value.as_object())
        else {
            return true;
        };
        properties.iter().all(|(name, property)| match property.get("const") {
            Some(tag) => object.get(name) == Some(tag),
            None => true,
        })
    }
}

/// Returns the schema of a property: the schema under its name, else `additionalProperties`.
pub(super) fn property<'s>(map: &'s Map<String, Value>, name: &str) -> Option<&'s Value> {
    map.get("properties").and_then(|properties| properties.get(name)).or_else(|| {
        // A pattern may apply to the name, and patterns are not evaluated here.
        if map.contains_key("patternProperties") { None } else { map.get("additionalProperties") }
    })
}

/// The schema of an item.
pub(super) fn item(map: &Map<String, Value>, index: usize) -> Option<&Value> {
    let first = subschemas(map, "prefixItems");
    first.get(index).or_else(|| map.get("items"))
}

/// Whether an object must have a property.
pub(super) fn requires(map: &Map<String, Value>, name: &str) -> bool {
    subschemas(map, "required").iter().any(|required| required == name)
}

fn subschemas<'s>(map: &'s Map<String, Value>, keyword: &str) -> &'s [Value] {
    map.get(keyword).and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn union(types: impl Iterator<Item = Types>) -> Types {
    types.fold(Types::NONE, Types::union)
}

/// Keywords that describe the content of a value. If a schema has one of them, its references and branches
/// are not searched.
const DESCRIBING: [&str; 4] = ["properties", "additionalProperties", "items", "prefixItems"];

/// The maximum number of subschemas that one query reads. References can form cycles, alternatives can
/// multiply, and the schema may come from an untrusted module.
const MAX_STEPS: u16 = 256;
