//! Example arguments, for a model that sent wrong arguments.

use serde_json::{Map, Value, json};

use crate::{JsonSchema, RoleKind};

/// The maximum nesting depth of an example. It stops the example of a recursive type.
const MAX_DEPTH: usize = 8;

/// The maximum number of values in an example. A schema may require any number of values.
const MAX_VALUES: usize = 64;

impl JsonSchema {
    /// Builds minimal arguments that the schema probably allows, with at most 8 levels and 64 values. `roles`
    /// states which arguments are paths, URLs and commands. The builder understands only the normal form of
    /// schemas, so validate the example of a foreign schema before showing it.
    #[must_use]
    pub fn example<'r>(&self, roles: impl IntoIterator<Item = (&'r str, RoleKind)>) -> Value {
        let root = self.as_value();
        let mut arguments = ExampleBuilder { root, remaining_values: MAX_VALUES }.value(root, MAX_DEPTH);
        if let Value::Object(arguments) = &mut arguments {
            for (name, role) in roles {
                if let Some(argument) = arguments.get_mut(name) {
                    *argument = json!(match role {
                        RoleKind::Path(_) | RoleKind::Entry => "/shared/file.txt",
                        RoleKind::Url => "https://example.com/",
                        RoleKind::Command => "ls",
                    });
                }
            }
        }
        arguments
    }
}

/// An example under construction.
struct ExampleBuilder<'s> {
    root: &'s Value,
    /// The number of values that may still be added.
    remaining_values: usize,
}

impl ExampleBuilder<'_> {
    fn value(&mut self, schema: &Value, depth: usize) -> Value {
        let (Some(map), Some(depth), Some(remaining_values)) =
            (schema.as_object(), depth.checked_sub(1), self.remaining_values.checked_sub(1))
        else {
            return Value::Null;
        };
        // The whole example shares one budget of values, unlike the depth.
        self.remaining_values = remaining_values;
        if let Some(known_value) = map.get("default").or_else(|| map.get("const")) {
            return known_value.clone();
        }
        if let Some(first_value) = first_of_array(map, "enum") {
            return first_value.clone();
        }
        if let Some(first_branch) = first_of_array(map, "anyOf") {
            return self.value(first_branch, depth);
        }
        if let Some(target) =
            map.get("$ref").and_then(Value::as_str).and_then(|target| target.strip_prefix('#'))
        {
            return self.root.pointer(target).map_or(Value::Null, |target| self.value(target, depth));
        }
        let kind = match map.get("type") {
            Some(Value::Array(kinds)) => kinds.first().and_then(Value::as_str),
            kind => kind.and_then(Value::as_str),
        };
        match kind {
            Some("boolean") => json!(true),
            Some("integer") => map.get("minimum").or_else(|| map.get("maximum")).cloned().unwrap_or(json!(1)),
            Some("number") => json!(1.5),
            Some("string") if map.contains_key("maxLength") => json!("x"),
            Some("string") => json!("text"),
            Some("array") => self.array(map, depth),
            Some("object") => self.object(map, depth),
            _ => Value::Null,
        }
    }

    fn array(&mut self, map: &Map<String, Value>, depth: usize) -> Value {
        if let Some(Value::Array(items)) = map.get("prefixItems") {
            return items.iter().take(MAX_VALUES).map(|item_schema| self.value(item_schema, depth)).collect();
        }
        // At most 4 items: a schema may require thousands, and the example need not be valid.
        let count = map.get("minItems").and_then(Value::as_u64).unwrap_or(1).min(4);
        (0..count).map(|_| map.get("items").map_or(Value::Null, |items| self.value(items, depth))).collect()
    }

    fn object(&mut self, map: &Map<String, Value>, depth: usize) -> Value {
        let mut members = Map::new();
        let required = map.get("required").and_then(Value::as_array).into_iter().flatten();
        for name in required.filter_map(Value::as_str).take(MAX_VALUES) {
            let property = map.get("properties").and_then(|properties| properties.get(name));
            let value = property.map_or(Value::Null, |property| self.value(property, depth));
            members.insert(name.to_owned(), value);
        }
        if let Some(values @ Value::Object(_)) = map.get("additionalProperties") {
            // One member shows the structure of a map.
            members.insert("key".to_owned(), self.value(values, depth));
        }
        members.into()
    }
}

fn first_of_array<'s>(map: &'s Map<String, Value>, key: &str) -> Option<&'s Value> {
    map.get(key)?.as_array()?.first()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Access;

    #[test]
    fn an_example_has_what_is_required_and_says_what_arguments_are() {
        let schema = JsonSchema::new(json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "mode": {"enum": ["create", "append"]},
                "lines": {"type": "array", "items": {"$ref": "#/$defs/Line"}},
                "other": {"type": "string"},
            },
            "required": ["path", "mode", "lines"],
            "$defs": {"Line": {"type": "object", "properties": {"n": {"type": "integer", "minimum": 3}},
                               "required": ["n"]}},
        }));
        assert_eq!(
            schema.example([("path", RoleKind::Path(Access::Write)), ("other", RoleKind::Url)]),
            json!({"path": "/shared/file.txt", "mode": "create", "lines": [{"n": 3}]})
        );
    }

    #[test]
    fn an_example_has_an_end_whatever_the_schema() {
        let endless = json!({"type": "array", "minItems": 1_000_000, "items": {"$ref": "#"}});
        let wide = json!({
            "type": "object",
            "required": (0..10_000).map(|n| n.to_string()).collect::<Vec<_>>(),
            "properties": {"1": endless},
        });
        for schema in [endless, wide] {
            let text = JsonSchema::new(schema).example([]).to_string();
            assert!(text.len() < 64 << 10, "{} bytes", text.len());
        }
    }
}
