//! Generates values that fit a schema, nearly fit it, or are arbitrary.

use portcullis_sdk::serde_json::{Map, Value, json};

/// A list of numbers that decides every choice. Once the list is used up, the first option is chosen.
pub(crate) struct Choices<'a>(std::slice::Iter<'a, u16>);

impl<'a> Choices<'a> {
    pub(crate) fn new(choices: &'a [u16]) -> Self {
        Self(choices.iter())
    }

    fn number_below(&mut self, bound: usize) -> usize {
        usize::from(*self.0.next().unwrap_or(&0)) % bound.max(1)
    }

    fn is_one_in(&mut self, bound: usize) -> bool {
        self.number_below(bound) == bound - 1
    }

    /// A value that fits a schema in normal form.
    pub(crate) fn fitting_value(&mut self, schema: &Value, root: &Value) -> Value {
        self.fitting_value_within(schema, root, 6)
    }

    fn fitting_value_within(&mut self, schema: &Value, root: &Value, depth: usize) -> Value {
        if let Some(target) = schema.get("$ref").and_then(Value::as_str) {
            let target = root.pointer(target.trim_start_matches('#')).expect("within the schema");
            return self.fitting_value_within(target, root, depth);
        }
        if let Some(Value::Array(branches)) = schema.get("anyOf") {
            let branch = self.number_below(branches.len());
            return self.fitting_value_within(&branches[branch], root, depth);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return values[self.number_below(values.len())].clone();
        }
        let kind = match schema.get("type") {
            Some(Value::String(kind)) => kind.clone(),
            Some(Value::Array(kinds)) => {
                kinds[self.number_below(kinds.len())].as_str().expect("a type's name").to_owned()
            }
            _ => return self.any_value(2),
        };
        match kind.as_str() {
            "null" => Value::Null,
            "boolean" => json!(self.is_one_in(2)),
            "integer" => self.integer(),
            "number" => json!([0.5, 2.0, 7.0][self.number_below(3)]),
            "string" if schema.get("maxLength").is_some() => json!(["x", "ä"][self.number_below(2)]),
            "string" => json!(["", "text", "5", "null"][self.number_below(4)]),
            "array" => self.array(schema, root, depth),
            "object" => self.object(schema, root, depth),
            other => panic!("no type of JSON: {other}"),
        }
    }

    /// A positive integer that fits every integer type, because the schema would also accept larger ones.
    fn integer(&mut self) -> Value {
        match self.number_below(4) {
            0 => json!(7.0),
            1 => json!(100.0),
            _ => json!(1 + self.number_below(100)),
        }
    }

    fn array(&mut self, schema: &Value, root: &Value, depth: usize) -> Value {
        if let Some(Value::Array(item_schemas)) = schema.get("prefixItems") {
            return item_schemas
                .iter()
                .map(|item_schema| self.fitting_value_within(item_schema, root, depth))
                .collect();
        }
        let count = match schema.get("minItems").and_then(Value::as_u64) {
            Some(count) => usize::try_from(count).expect("small"),
            None if depth == 0 => 0,
            None => self.number_below(3),
        };
        (0..count)
            .map(|_| self.fitting_value_within(&schema["items"], root, depth.saturating_sub(1)))
            .collect()
    }

    fn object(&mut self, schema: &Value, root: &Value, depth: usize) -> Value {
        let mut members = Map::new();
        for (name, property) in schema.get("properties").and_then(Value::as_object).into_iter().flatten() {
            let required =
                schema["required"].as_array().expect("in normal form").iter().any(|entry| entry == name);
            if required || (depth > 0 && self.is_one_in(2)) {
                members
                    .insert(name.clone(), self.fitting_value_within(property, root, depth.saturating_sub(1)));
            } else if self.is_one_in(4) {
                members.insert(name.clone(), Value::Null);
            }
        }
        if let Some(values) = schema.get("additionalProperties").filter(|values| **values != json!(false)) {
            for name in ["one", "two"].into_iter().take(self.number_below(3)) {
                members.insert(
                    name.to_owned(),
                    self.fitting_value_within(values, root, depth.saturating_sub(1)),
                );
            }
        }
        members.into()
    }

    /// Changes something somewhere in a value.
    pub(crate) fn mutate(&mut self, value: &mut Value) {
        let deeper = !self.is_one_in(3);
        match value {
            Value::Object(members) if deeper && !members.is_empty() => {
                let index = self.number_below(members.len());
                let member = members.values_mut().nth(index).expect("there");
                self.mutate(member);
            }
            Value::Array(items) if deeper && !items.is_empty() => {
                let index = self.number_below(items.len());
                self.mutate(&mut items[index]);
            }
            Value::Object(members) => match self.number_below(4) {
                0 => {
                    members.insert("unknown".to_owned(), self.any_value(1));
                }
                1 if !members.is_empty() => {
                    let name = members.keys().nth(self.number_below(members.len())).expect("there").clone();
                    members.remove(&name);
                }
                2 => *value = members.values().cloned().collect(),
                _ => *value = self.any_value(2),
            },
            Value::Array(items) => match self.number_below(3) {
                0 => items.push(self.any_value(1)),
                1 if !items.is_empty() => {
                    items.pop();
                }
                _ => *value = self.any_value(2),
            },
            Value::String(text) if self.is_one_in(2) => *value = json!({ text.clone(): null }),
            other => *other = self.any_value(2),
        }
    }

    /// An arbitrary value, made of names and words that the types here have.
    pub(crate) fn any_value(&mut self, depth: usize) -> Value {
        const WORDS: [&str; 14] = [
            "text", "by_name", "Small", "Exact", "kind", "circle", "Circle", "radius", "name", "children",
            "order", "inner", "", "x",
        ];
        let word = |choices: &mut Self| WORDS[choices.number_below(WORDS.len())];
        match self.number_below(if depth == 0 { 6 } else { 8 }) {
            0 => Value::Null,
            1 => json!(self.is_one_in(2)),
            2 => self.integer(),
            3 => json!(0.5),
            4 | 5 => json!(word(self)),
            6 => (0..self.number_below(3)).map(|_| self.any_value(depth - 1)).collect(),
            _ => (0..self.number_below(3))
                .map(|_| (word(self).to_owned(), self.any_value(depth - 1)))
                .collect(),
        }
    }
}
