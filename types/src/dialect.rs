//! Schema dialects: the JSON Schema dialects of model providers, each derived from a tool's own schema.
//!
//! A tool's schema has one normal form (`docs/tool.md` of `portcullis-sdk`, "Schema"). A dialect is a pure
//! function of the normal form: equal schemas give equal bytes. If the dialect cannot express a constraint,
//! it moves the constraint into the description or refuses the schema. It never allows arguments that the
//! call could not carry. The registry validates every call against the normal form, whatever the dialect.

mod anthropic;
mod description;
mod gemini;
mod openai;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::JsonSchema;

crate::word_enum! {
    /// The JSON Schema dialect of a provider.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SchemaDialect {
        /// The Model Context Protocol accepts draft 2020-12: the normal form, unchanged.
        Mcp = "mcp",
        /// OpenAI's strict mode: every property is required, an optional property may be null instead, and unknown
        /// properties are refused. Maps, values of any kind and defaults are not supported.
        OpenAiStrict = "openai_strict",
        /// Gemini's subset of OpenAPI: no unions and no references. A union of objects becomes one object whose
        /// description says which fields belong together; other unions are refused.
        Gemini = "gemini",
        /// Anthropic's strict tool use: unknown properties are refused, and bounds go into the description. Maps,
        /// values of any kind and recursion are not supported.
        Anthropic = "anthropic",
    }
}

impl SchemaDialect {
    /// Translates a schema in normal form.
    ///
    /// # Errors
    /// If the dialect cannot express the schema. OpenAI and Anthropic also have a non-strict mode, which
    /// accepts the normal form itself.
    pub fn render(self, schema: &JsonSchema) -> Result<JsonSchema, DialectError> {
        let root = schema.as_value();
        let rendered = match self {
            Self::Mcp => Ok(root.clone()),
            Self::OpenAiStrict => openai::render(root),
            Self::Gemini => gemini::render(root),
            Self::Anthropic => anthropic::render(root),
        };
        rendered.map(JsonSchema::new).map_err(|fault| DialectError {
            dialect: self.as_str(),
            pointer: fault.pointer,
            problem: fault.problem,
        })
    }
}

/// Why a dialect cannot express a schema.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("dialect `{dialect}` cannot express `{pointer}/`: {problem}")]
pub struct DialectError {
    /// The dialect's name.
    pub dialect: &'static str,
    /// The JSON pointer of the offending part; empty for the root.
    pub pointer: String,
    /// The unsupported feature, and a supported feature to use instead.
    pub problem: &'static str,
}

/// A construct that a dialect cannot express.
#[derive(Debug)]
struct DialectFault {
    pointer: String,
    problem: &'static str,
}

impl DialectFault {
    fn new(pointer: &str, problem: &'static str) -> Self {
        Self { pointer: pointer.to_owned(), problem }
    }
}

const MAP: &str = "an object with arbitrary keys; use a list of key-value pairs instead";
const ANYTHING: &str = "a value of any type; name its type";
const RECURSION: &str = "a type that contains itself; use a list of nodes that name their parent instead";

/// Returns the pointer to the part below a keyword, or below a name under the keyword.
fn nested_pointer(pointer: &str, keyword: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{pointer}/{keyword}/{}", name.replace('~', "~0").replace('/', "~1")),
        None => format!("{pointer}/{keyword}"),
    }
}

/// Returns the keywords of a schema. Refuses a schema that allows everything or nothing.
fn keywords_of<'v>(schema: &'v Value, pointer: &str) -> Result<&'v Map<String, Value>, DialectFault> {
    if allows_everything(schema) {
        return Err(DialectFault::new(pointer, ANYTHING));
    }
    schema.as_object().ok_or_else(|| DialectFault::new(pointer, "a schema that allows nothing"))
}

/// Whether a schema allows every value because it has only annotations.
fn allows_everything(schema: &Value) -> bool {
    match schema {
        Value::Bool(allows) => *allows,
        Value::Object(map) => map.keys().all(|key| ["description", "default"].contains(&key.as_str())),
        _ => false,
    }
}

/// Renders the branches of a choice.
fn render_branches(
    map: &mut Map<String, Value>,
    pointer: &str,
    render: fn(&Value, &str) -> Result<Value, DialectFault>,
) -> Result<(), DialectFault> {
    if let Some(branches) = map.get_mut("anyOf").and_then(Value::as_array_mut) {
        for (index, branch) in branches.iter_mut().enumerate() {
            *branch = render(branch, &nested_pointer(pointer, "anyOf", Some(&index.to_string())))?;
        }
    }
    Ok(())
}

/// Renders the items of a list. A tuple becomes a list whose items may have the type of any of the tuple's members.
fn render_item_schemas(
    map: &mut Map<String, Value>,
    pointer: &str,
    render: fn(&Value, &str) -> Result<Value, DialectFault>,
) -> Result<(), DialectFault> {
    let items = match (map.remove("prefixItems"), map.get("items")) {
        (Some(Value::Array(items)), _) => {
            // These dialects have no tuples. The order of the members is lost, and the decoder still checks it.
            let mut kinds: Vec<Value> = Vec::new();
            for (index, item_schema) in items.iter().enumerate() {
                let kind =
                    render(item_schema, &nested_pointer(pointer, "prefixItems", Some(&index.to_string())))?;
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            if kinds.len() == 1 { kinds.remove(0) } else { json!({"anyOf": kinds}) }
        }
        (_, Some(items)) => render(items, &nested_pointer(pointer, "items", None))?,
        (_, None) => return Err(DialectFault::new(pointer, ANYTHING)),
    };
    map.insert("items".to_owned(), items);
    Ok(())
}
