//! Collects the schemas of recursive types, so that each tool's schema has them once.

use serde_json::{Map, Value};

/// The `$defs` of one tool's schema.
#[derive(Debug, Default)]
pub struct Definitions(Map<String, Value>);

impl Definitions {
    /// Adds the definitions of one type and adjusts the references to them. If two types have one name, the second
    /// gets a number.
    pub(super) fn adopt(&mut self, schema: &mut Value, mut new: Map<String, Value>) {
        let names: Vec<String> = new.keys().cloned().collect();
        for name in names {
            if self.0.get(&name).is_none_or(|known| Some(known) == new.get(&name)) {
                continue;
            }
            let Some(free_name) = (2_usize..)
                .map(|number| format!("{name}{number}"))
                .find(|free_name| !self.0.contains_key(free_name) && !new.contains_key(free_name))
            else {
                continue;
            };
            rename(schema, &name, &free_name);
            for definition in new.values_mut() {
                rename(definition, &name, &free_name);
            }
            if let Some(definition) = new.remove(&name) {
                new.insert(free_name, definition);
            }
        }
        self.0.extend(new);
    }

    /// All definitions; empty for nearly every tool.
    pub(crate) fn into_map(self) -> Map<String, Value> {
        self.0
    }
}

fn rename(value: &mut Value, from: &str, to: &str) {
    match value {
        Value::Object(map) => {
            if let Some(Value::String(reference)) = map.get_mut("$ref")
                && *reference == format!("#/$defs/{from}")
            {
                *reference = format!("#/$defs/{to}");
            }
            map.values_mut().for_each(|nested| rename(nested, from, to));
        }
        Value::Array(items) => items.iter_mut().for_each(|nested| rename(nested, from, to)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn two_types_of_one_name_are_kept_apart() {
        let definition = |kind: &str| {
            let node = json!({"properties": {"next": {"$ref": "#/$defs/Node"}}, "title": kind});
            Map::from_iter([("Node".to_owned(), node)])
        };
        let mut definitions = Definitions::default();
        let mut first = json!({"$ref": "#/$defs/Node"});
        let (mut second, mut third) = (first.clone(), first.clone());
        definitions.adopt(&mut first, definition("a"));
        definitions.adopt(&mut second, definition("b"));
        definitions.adopt(&mut third, definition("a"));
        assert_eq!(first, json!({"$ref": "#/$defs/Node"}));
        assert_eq!(second, json!({"$ref": "#/$defs/Node2"}));
        assert_eq!(third, first);
        let all = definitions.into_map();
        assert_eq!(all["Node2"]["properties"]["next"], second);
        assert_eq!(all.len(), 2);
    }
}
