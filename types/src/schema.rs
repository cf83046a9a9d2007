//! The declaration of a tool for a model, and the JSON Schema of its parameters.
//!
//! Schemas are plain data here. The registry validates arguments against them.

use std::{collections::BTreeMap, sync::Arc};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use thiserror::Error;

/// The declaration of a tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FunctionDecl {
    /// The tool's name.
    pub name: String,
    /// The description for the model.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The schema of the tool's arguments. It always describes an object.
    pub parameters: JsonSchema,
}

/// A JSON Schema of draft 2020-12, as written. [`JsonSchemaType`] is a typed view of a subset, with
/// conversions in both directions. Clones share the value, because every turn of a model lists every tool.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JsonSchema(Arc<Value>);

impl JsonSchema {
    /// Wraps any value as a schema. Registration checks that the value is a valid schema.
    #[must_use]
    pub fn new(value: Value) -> Self {
        Self(Arc::new(value))
    }

    /// The schema of a tool without parameters.
    #[must_use]
    pub fn empty_object() -> Self {
        JsonSchemaType::Object { properties: BTreeMap::new(), required: Vec::new() }.into()
    }

    /// The schema as JSON.
    #[must_use]
    pub fn as_value(&self) -> &Value {
        &self.0
    }

    /// Whether the schema's top level describes an object.
    #[must_use]
    pub fn describes_object(&self) -> bool {
        self.0.get("type").and_then(Value::as_str) == Some("object")
    }

    /// The schema as JSON, by value.
    #[must_use]
    pub fn into_value(self) -> Value {
        Arc::unwrap_or_clone(self.0)
    }

    /// Whether unknown keys are refused (`additionalProperties` is `false`).
    #[must_use]
    pub fn denies_unknown(&self) -> bool {
        self.0.get("additionalProperties") == Some(&Value::Bool(false))
    }

    /// Returns the typed view of the schema.
    ///
    /// # Errors
    /// [`UntypedSchema`] with the first keyword or type that [`JsonSchemaType`] lacks.
    pub fn as_typed(&self) -> Result<JsonSchemaType, UntypedSchema> {
        typed(&self.0, "")
    }
}

impl From<JsonSchemaType> for JsonSchema {
    fn from(schema: JsonSchemaType) -> Self {
        let described = |kind: &str, description: Option<String>| {
            let mut map = Map::new();
            if let Some(description) = description {
                map.insert("description".into(), description.into());
            }
            map.insert("type".into(), kind.into());
            map
        };
        Self::new(match schema {
            JsonSchemaType::Object { properties, required } => json!({
                "properties": properties,
                "required": required,
                "type": "object",
            }),
            JsonSchemaType::String { enum_values, description } => {
                let mut map = described("string", description);
                if let Some(values) = enum_values {
                    map.insert("enum".into(), values.into());
                }
                Value::Object(map)
            }
            JsonSchemaType::Integer { description } => described("integer", description).into(),
            JsonSchemaType::Number { description } => described("number", description).into(),
            JsonSchemaType::Boolean { description } => described("boolean", description).into(),
            JsonSchemaType::Array { items, description } => {
                let mut map = described("array", description);
                map.insert("items".into(), items.into_value());
                Value::Object(map)
            }
        })
    }
}

impl TryFrom<&JsonSchema> for JsonSchemaType {
    type Error = UntypedSchema;

    fn try_from(schema: &JsonSchema) -> Result<Self, Self::Error> {
        schema.as_typed()
    }
}

/// The typed view of a schema. It serializes as the schema itself, with a lowercase `type`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum JsonSchemaType {
    /// An object with named properties.
    Object {
        /// The properties, sorted by name.
        #[serde(default)]
        properties: BTreeMap<String, JsonSchema>,
        /// The required names, in order of declaration.
        #[serde(default)]
        required: Vec<String>,
    },
    /// A string, optionally from a list.
    String {
        /// The allowed values, if there is a list of them.
        #[serde(rename = "enum", default, skip_serializing_if = "Option::is_none")]
        enum_values: Option<Vec<String>>,
        /// The description for the model, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// A whole number.
    Integer {
        /// The description for the model, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// Any number.
    Number {
        /// The description for the model, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// True or false.
    Boolean {
        /// The description for the model, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
    /// A list whose values all have one schema.
    Array {
        /// The schema of each value.
        items: Box<JsonSchema>,
        /// The description for the model, if there is one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        description: Option<String>,
    },
}

impl JsonSchemaType {
    /// A string without description or limits.
    #[must_use]
    pub const fn string() -> Self {
        Self::String { enum_values: None, description: None }
    }

    /// An integer without description.
    #[must_use]
    pub const fn integer() -> Self {
        Self::Integer { description: None }
    }

    /// A number without description.
    #[must_use]
    pub const fn number() -> Self {
        Self::Number { description: None }
    }

    /// A boolean without description.
    #[must_use]
    pub const fn boolean() -> Self {
        Self::Boolean { description: None }
    }
}

/// Why [`JsonSchemaType`] cannot express a schema.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("schema at `{pointer}/` has no typed view: {problem}")]
pub struct UntypedSchema {
    /// The JSON pointer of the offending schema; empty for the root.
    pub pointer: String,
    /// The unsupported keyword or type.
    pub problem: String,
}

fn typed(value: &Value, pointer: &str) -> Result<JsonSchemaType, UntypedSchema> {
    let fail = |problem: String| UntypedSchema { pointer: pointer.to_owned(), problem };
    let Some(map) = value.as_object() else {
        return Err(fail("it is not an object".into()));
    };
    let Some(kind) = map.get("type").and_then(Value::as_str) else {
        return Err(fail("it has no single `type`".into()));
    };
    let known_keywords: &[&str] = match kind {
        "object" => &["properties", "required"],
        "string" => &["enum", "description"],
        "integer" | "number" | "boolean" => &["description"],
        "array" => &["items", "description"],
        other => return Err(fail(format!("type `{other}`"))),
    };
    if let Some(keyword) = map.keys().find(|key| *key != "type" && !known_keywords.contains(&key.as_str())) {
        return Err(fail(format!("keyword `{keyword}`")));
    }
    let schema = JsonSchemaType::deserialize(value).map_err(|error| fail(error.to_string()))?;
    match &schema {
        JsonSchemaType::Object { properties, .. } => {
            for (name, property) in properties {
                typed(property.as_value(), &format!("{pointer}/properties/{name}"))?;
            }
        }
        JsonSchemaType::Array { items, .. } => {
            typed(items.as_value(), &format!("{pointer}/items"))?;
        }
        _ => {}
    }
    Ok(schema)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(schema: &JsonSchemaType, json: &Value) {
        let converted = JsonSchema::from(schema.clone());
        assert_eq!(converted.as_value(), json);
        assert_eq!(&converted.as_typed().expect("typed"), schema);
        assert_eq!(&serde_json::to_value(schema).expect("serializes"), json);
    }

    #[test]
    fn every_typed_schema_converts_both_ways() {
        check(&JsonSchemaType::string(), &json!({"type": "string"}));
        check(&JsonSchemaType::integer(), &json!({"type": "integer"}));
        check(&JsonSchemaType::number(), &json!({"type": "number"}));
        check(&JsonSchemaType::boolean(), &json!({"type": "boolean"}));
        check(
            &JsonSchemaType::String {
                enum_values: Some(vec!["a".into()]),
                description: Some("which".into()),
            },
            &json!({"type": "string", "enum": ["a"], "description": "which"}),
        );
        check(
            &JsonSchemaType::Array { items: Box::new(JsonSchemaType::integer().into()), description: None },
            &json!({"type": "array", "items": {"type": "integer"}}),
        );
        check(
            &JsonSchemaType::Object {
                properties: [("n".to_owned(), JsonSchemaType::number().into())].into(),
                required: vec!["n".into()],
            },
            &json!({"type": "object", "properties": {"n": {"type": "number"}}, "required": ["n"]}),
        );
    }

    #[test]
    fn the_shape_of_the_specification_is_exact() {
        let decl = FunctionDecl {
            name: "file_read".into(),
            description: Some("Reads the contents of a file at the given path.".into()),
            parameters: JsonSchemaType::Object {
                properties: [("path".to_owned(), JsonSchemaType::string().into())].into(),
                required: vec!["path".into()],
            }
            .into(),
        };
        assert_eq!(
            serde_json::to_string(&decl).expect("serializes"),
            r#"{"name":"file_read","description":"Reads the contents of a file at the given path.","parameters":{"properties":{"path":{"type":"string"}},"required":["path"],"type":"object"}}"#
        );
    }

    #[test]
    fn a_schema_outside_the_typed_view_says_where_and_what() {
        let schema = JsonSchema::new(json!({
            "type": "object",
            "properties": {"n": {"type": "integer", "minimum": 0}},
            "required": [],
        }));
        let error = schema.as_typed().expect_err("minimum has no place");
        assert_eq!(error.pointer, "/properties/n");
        assert_eq!(error.problem, "keyword `minimum`");
    }
}
