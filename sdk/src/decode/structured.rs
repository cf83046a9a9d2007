//! Values with parts: lists, maps, and the author's types.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Mistakes, explain::explain, integers, unambiguous};
use crate::{ParamSpec, ToolSpec};

/// Decodes from the text, so that no number loses digits; if that fails, once more with integers rewritten.
pub(super) fn decode<T: DeserializeOwned>(raw: &RawValue, spec: &ParamSpec) -> Result<T, Mistakes> {
    unambiguous::ensure(raw.get()).map_err(|problem| Mistakes {
        texts: vec![format!("field '{}': {problem}", spec.name)],
        example: None,
    })?;
    let first = match serde_json::from_str(raw.get()) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if let Some(rewritten) = integers::numbers(raw.get())
        && let Ok(value) = serde_json::from_str(&rewritten)
    {
        return Ok(value);
    }
    Err(Mistakes { texts: problems(raw, spec, &first), example: Some(example) })
}

/// The mistakes by the schema. If the schema finds none, the decoder's own message, for instance about a
/// number that is too large for its type.
fn problems(raw: &RawValue, spec: &ParamSpec, error: &serde_json::Error) -> Vec<String> {
    let found = explain(raw, spec);
    if !found.is_empty() {
        return found;
    }
    let message = error.to_string();
    let message = message.split(" at line ").next().unwrap_or_default();
    vec![format!("field '{}': {message}", spec.name)]
}

/// Minimal arguments of the tool, as JSON.
fn example(spec: &ToolSpec) -> String {
    let roles = spec.params.iter().filter_map(|param| Some((param.name, param.role?)));
    spec.parameters().example(roles).to_string()
}
