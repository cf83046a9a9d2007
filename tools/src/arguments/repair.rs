//! Lossless repairs of values that have the wrong JSON type but only one possible meaning.
//!
//! The repairs are `"5"`→`5`, `5.0`→`5`, `"true"`→`true`, null for an absent optional, and JSON in a string where an
//! object or array belongs. No other guess is made. A value whose type the schema accepts stays as it is, and the
//! result is validated like any other.

use std::collections::BTreeMap;

use serde_json::{Map, Number, Value};

use super::{
    decode::{MAX_ARGUMENT_DEPTH, decode_strict},
    rewrite::ValueEdit,
    view::{SchemaView, Types, item, property, requires},
};

/// The repairs that are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RepairScope {
    /// All repairs: the value does not fit the schema.
    Everything,
    /// Rewrites only `5.0` to `5`, and only where the schema requires an integer. JSON Schema counts 5.0 as an integer and finds no fault,
    /// but a typed decoder refuses it.
    WholeNumbers,
}

/// A step on the path to a repaired value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum RepairStep {
    /// An item of an array.
    Index(usize),
    /// A member of an object.
    Key(String),
}

/// The locations of the repaired values, and the edit that makes the same repairs in the text.
#[derive(Debug, Default)]
pub(super) struct RepairResult {
    pub(super) locations: Vec<Vec<RepairStep>>,
    pub(super) edit: Option<ValueEdit>,
}

/// Repairs a value in place.
pub(super) fn repair(value: &mut Value, schema: &Value, scope: RepairScope) -> RepairResult {
    let mut repairer =
        Repairer { view: SchemaView::new(schema), scope, path: Vec::new(), locations: Vec::new() };
    let edit = repairer.value(value, schema);
    RepairResult { locations: repairer.locations, edit }
}

/// Whether a value contains a number that [`RepairScope::WholeNumbers`] repairs.
pub(super) fn has_whole_float(value: &Value) -> bool {
    match value {
        Value::Number(number) => float_as_integer(number).is_some(),
        Value::Array(items) => items.iter().any(has_whole_float),
        Value::Object(members) => members.values().any(has_whole_float),
        Value::Null | Value::Bool(_) | Value::String(_) => false,
    }
}

struct Repairer<'s> {
    view: SchemaView<'s>,
    scope: RepairScope,
    path: Vec<RepairStep>,
    locations: Vec<Vec<RepairStep>>,
}

impl<'s> Repairer<'s> {
    fn value(&mut self, value: &mut Value, schema: &'s Value) -> Option<ValueEdit> {
        match value {
            Value::Number(number) => {
                let repaired = float_as_integer(number)?;
                self.view.types(schema).are_whole_numbers_only().then(|| {
                    *value = repaired.into();
                    self.note();
                    ValueEdit::Replace(value.to_string())
                })
            }
            Value::String(text) if self.scope == RepairScope::Everything => {
                let (repaired_value, edit) =
                    reread(text, self.view.types(schema), MAX_ARGUMENT_DEPTH - self.path.len())?;
                *value = repaired_value;
                self.note();
                match edit {
                    ValueEdit::Unquote(text, _) => {
                        Some(ValueEdit::Unquote(text, self.value(value, schema).map(Box::new)))
                    }
                    edit => Some(edit),
                }
            }
            Value::Array(_) | Value::Object(_) => {
                let map = self.view.describing(schema, value)?;
                match value {
                    Value::Array(items) => self.items(items, map),
                    Value::Object(members) => self.members(members, map),
                    _ => None,
                }
            }
            Value::Null | Value::Bool(_) | Value::String(_) => None,
        }
    }

    fn items(&mut self, items: &mut [Value], map: &'s Map<String, Value>) -> Option<ValueEdit> {
        let mut edits = BTreeMap::new();
        for (index, value) in items.iter_mut().enumerate() {
            let Some(schema) = item(map, index) else { continue };
            self.path.push(RepairStep::Index(index));
            if let Some(edit) = self.value(value, schema) {
                edits.insert(index, edit);
            }
            self.path.pop();
        }
        (!edits.is_empty()).then_some(ValueEdit::Items(edits))
    }

    fn members(
        &mut self,
        members: &mut Map<String, Value>,
        map: &'s Map<String, Value>,
    ) -> Option<ValueEdit> {
        let mut edits = BTreeMap::new();
        for (name, value) in members.iter_mut() {
            let Some(schema) = property(map, name) else {
                continue;
            };
            self.path.push(RepairStep::Key(name.clone()));
            if self.stands_for_absence(value, schema, map, name) {
                self.note();
                edits.insert(name.clone(), ValueEdit::Remove);
            } else if let Some(edit) = self.value(value, schema) {
                edits.insert(name.clone(), edit);
            }
            self.path.pop();
        }
        members.retain(|name, _| edits.get(name) != Some(&ValueEdit::Remove));
        (!edits.is_empty()).then_some(ValueEdit::Members(edits))
    }

    fn stands_for_absence(
        &self,
        value: &Value,
        schema: &'s Value,
        map: &Map<String, Value>,
        name: &str,
    ) -> bool {
        self.scope == RepairScope::Everything
            && value.is_null()
            && schema.is_object()
            && !requires(map, name)
            && !self.view.types(schema).intersects(Types::NULL)
    }

    fn note(&mut self) {
        self.locations.push(self.path.clone());
    }
}

/// Reads a string as one of the wanted types, unless a string is allowed. The notations of the types are
/// disjoint, so at most one type matches.
pub(super) fn reread(text: &str, types: Types, depth_left: usize) -> Option<(Value, ValueEdit)> {
    if types.intersects(Types::STRING) {
        return None;
    }
    match text {
        "true" | "false" => types
            .intersects(Types::BOOLEAN)
            .then(|| ((text == "true").into(), ValueEdit::Replace(text.to_owned()))),
        _ if types.intersects(Types::INTEGER.union(Types::FRACTION)) && is_number_like(text) => {
            let number: Number = serde_json::from_str(text).ok()?;
            let is_exact = if is_integer(text) {
                // An integer too large for `Value` loses digits in the value, but keeps them in the text.
                types.intersects(Types::INTEGER)
            } else {
                types.intersects(Types::FRACTION) && number.to_string() == text
            };
            is_exact.then(|| (Value::Number(number), ValueEdit::Replace(text.to_owned())))
        }
        _ => {
            let bracket_type = match text.trim_start().chars().next() {
                Some('{') => Types::OBJECT,
                Some('[') => Types::ARRAY,
                _ => Types::NONE,
            };
            if !types.intersects(bracket_type) {
                return None;
            }
            let value = decode_strict(text).ok()?;
            (depth(&value) <= depth_left).then(|| (value, ValueEdit::Unquote(text.to_owned(), None)))
        }
    }
}

/// Converts a whole number in float notation to an integer. `None` if the float may already have lost
/// precision.
fn float_as_integer(number: &Number) -> Option<i64> {
    if !number.is_f64() {
        return None;
    }
    let float = number.as_f64().filter(|float| float.fract() == 0.0 && float.abs() < EXACT_BELOW)?;
    // Convert through text. Below 2^53 the text is exact and has no exponent, and unlike a cast it cannot truncate.
    format!("{float:.0}").parse().ok()
}

fn is_number_like(text: &str) -> bool {
    text.len() <= MAX_NUMBER_BYTES
        && text.strip_prefix('-').unwrap_or(text).starts_with(|first: char| first.is_ascii_digit())
}

fn is_integer(text: &str) -> bool {
    let digits = text.strip_prefix('-').unwrap_or(text);
    text != "-0" && digits.bytes().all(|byte| byte.is_ascii_digit())
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

/// 2^53. Above it, floats skip whole numbers.
const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;

/// The maximum length of a number text that is repaired. The longest number that a tool decodes is shorter (`u128` has
/// 39 digits).
const MAX_NUMBER_BYTES: usize = 48;
