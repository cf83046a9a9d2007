//! Helpers for native tools: the schema of a flat object, and the decoding of arguments.

use portcullis_types::{FunctionDecl, JsonSchema, ToolError};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// Builds a declaration whose arguments have these properties and no others.
pub(super) fn declare(name: &str, description: &str, properties: &Value, required: &[&str]) -> FunctionDecl {
    FunctionDecl {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        parameters: JsonSchema::new(json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        })),
    }
}

/// Builds the schema of results that are objects with all of these properties and no others.
pub(super) fn results(properties: &Value) -> JsonSchema {
    let required: Vec<&str> =
        properties.as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    JsonSchema::new(json!({
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": false,
    }))
}

/// Decodes arguments. A registry has already validated them, but a direct caller may not have.
pub(super) fn decode<T: DeserializeOwned>(args: &str) -> Result<T, ToolError> {
    let text = if args.trim().is_empty() { "{}" } else { args };
    serde_json::from_str(text).map_err(|error| ToolError::invalid_arguments(error.to_string()))
}
