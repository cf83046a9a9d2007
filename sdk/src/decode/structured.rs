//! Decodes values with parts: lists, maps, and the author's types.

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;

use super::{Faults, duplicate_keys, explain::explain, integers};
use crate::{ParamSpec, ToolSpec};

/// Decodes from the text, so that no number loses digits. If that fails, decodes again with integers rewritten.
pub(super) fn decode<T: DeserializeOwned>(raw: &RawValue, spec: &ParamSpec) -> Result<T, Faults> {
    duplicate_keys::check(raw.get())
        .map_err(|fault| Faults { texts: vec![format!("field '{}': {fault}", spec.name)], example: None })?;
    let first_error = match serde_json::from_str(raw.get()) {
        Ok(value) => return Ok(value),
        Err(error) => error,
    };
    if let Some(rewritten) = integers::rewrite_whole_numbers(raw.get())
        && let Ok(value) = serde_json::from_str(&rewritten)
    {
        return Ok(value);
    }
    Err(Faults { texts: describe_faults(raw, spec, &first_error), example: Some(example) })
}

/// Returns the faults that the schema explains. If there are none, the decoder's own message, for instance
/// about a number that is too large for its type.
fn describe_faults(raw: &RawValue, spec: &ParamSpec, error: &serde_json::Error) -> Vec<String> {
    let explained = explain(raw, spec);
    if !explained.is_empty() {
        return explained;
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
