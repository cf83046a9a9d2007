//! Profiles: the JSON Schema dialects of model providers, each derived from a tool's own schema.
//!
//! A tool's schema has one normal form (`docs/tool.md` of `portcullis-sdk`, "Schema"). A dialect is a pure
//! function of it: the same schema gives the same bytes. A constraint that the dialect cannot express goes
//! into the description, or the schema is refused; a dialect never allows arguments that the call would then
//! refuse to carry. The registry checks every call against the normal form, independent of the dialect.

mod anthropic;
mod gemini;
mod notes;
mod openai;
#[cfg(test)]
mod tests;

use serde_json::{Map, Value, json};
use thiserror::Error;

use crate::JsonSchema;

crate::words! {
    /// A dialect of a provider.
    #[derive(serde::Serialize, Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum SchemaDialect {
        /// The Model Context Protocol takes draft 2020-12: the normal form, unchanged.
        Mcp = "mcp",
        /// OpenAI's strict mode: every property is required, an optional one may be null instead, unknown ones
        /// are refused. Maps, values of any kind and defaults are not supported.
        OpenAiStrict = "openai_strict",
        /// Gemini's subset of OpenAPI: no unions, no references. A union of objects becomes one object whose
        /// description says which fields go together; other unions are refused.
        Gemini = "gemini",
        /// Anthropic's strict tool use: unknown properties are refused; bounds go into the description. Maps,
        /// values of any kind and recursion are not supported.
        Anthropic = "anthropic",
    }
}

impl SchemaDialect {
    /// Translates a schema in normal form.
    ///
    /// # Errors
    /// If the dialect cannot express the schema. For providers that also have a non-strict mode (OpenAI,
    /// Anthropic), the normal form itself can be sent there.
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

/// A schema that a dialect cannot express.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("dialect `{dialect}` has no way to say `{pointer}/`: {problem}")]
pub struct DialectError {
    /// The dialect's name.
    pub dialect: &'static str,
    /// The JSON pointer of the part at fault, empty for the root.
    pub pointer: String,
    /// The unsupported feature, and a supported one instead.
    pub problem: &'static str,
}

/// A fault found by a dialect.
#[derive(Debug)]
struct ProfileFault {
    pointer: String,
    problem: &'static str,
}

impl ProfileFault {
    fn at(pointer: &str, problem: &'static str) -> Self {
        Self { pointer: pointer.to_owned(), problem }
    }
}

const MAP: &str = "an object with arbitrary keys; a list of key and value pairs has a place everywhere";
const ANYTHING: &str = "a value of any kind; write its type out";
const RECURSION: &str = "a type that contains itself; a list of nodes that name their parent has a place";

/// The pointer to the part below one keyword, or below a name under it.
fn below(pointer: &str, keyword: &str, name: Option<&str>) -> String {
    match name {
        Some(name) => format!("{pointer}/{keyword}/{}", name.replace('~', "~0").replace('/', "~1")),
        None => format!("{pointer}/{keyword}"),
    }
}

/// Whether a schema allows every value, since it has only annotations.
fn allows_everything(schema: &Value) -> bool {
    match schema {
        Value::Bool(allowed) => *allowed,
        Value::Object(map) => map.keys().all(|key| ["description", "default"].contains(&key.as_str())),
        _ => false,
    }
}

/// Renders the items of a list. A tuple becomes a list whose items are any of the tuple's.
fn items_of_any_place(
    map: &mut Map<String, Value>,
    at: &str,
    render: fn(&Value, &str) -> Result<Value, ProfileFault>,
) -> Result<(), ProfileFault> {
    let items = match (map.remove("prefixItems"), map.get("items")) {
        (Some(Value::Array(places)), _) => {
            let mut kinds: Vec<Value> = Vec::new();
            for (index, place) in places.iter().enumerate() {
                let kind = render(place, &below(at, "prefixItems", Some(&index.to_string())))?;
                if !kinds.contains(&kind) {
                    kinds.push(kind);
                }
            }
            if kinds.len() == 1 { kinds.remove(0) } else { json!({"anyOf": kinds}) }
        }
        (_, Some(items)) => render(items, &below(at, "items", None))?,
        (_, None) => return Err(ProfileFault::at(at, ANYTHING)),
    };
    map.insert("items".to_owned(), items);
    Ok(())
}
