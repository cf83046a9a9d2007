//! Strict JSON: refuses text that two readers could understand differently, or that could exhaust a reader.
//!
//! The grammar is `serde_json`'s, which already refuses trailing data, NaN, infinities and lone surrogates.
//! This module adds limits of size and depth, and refuses duplicate keys: if the policy read the first value and the
//! tool the last, the tool would run a call that the policy never saw.

use std::fmt;

use portcullis_types::ToolError;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value, map::Entry};

use super::faults::{show_name, show_text};

/// The maximum length of the text of a call's arguments: 1 MiB. The limit bounds how much text from a model or a client
/// the host parses, validates and keeps.
pub const MAX_ARGUMENT_BYTES: usize = 1 << 20;

/// The maximum nesting depth of objects and arrays, including the outermost one: 64. The limit lets later
/// code recurse over a value without overflowing the stack.
pub const MAX_ARGUMENT_DEPTH: usize = 64;

/// Decodes a text. Numbers outside `u64` and `i64` become floats in the value, but keep their digits in the text.
pub(super) fn decode_strict(text: &str) -> Result<Value, ToolError> {
    if text.len() > MAX_ARGUMENT_BYTES {
        return Err(ToolError::invalid_arguments(format!(
            "the arguments are too large: {} bytes, at most {MAX_ARGUMENT_BYTES} are allowed",
            text.len()
        )));
    }
    let mut deserializer = serde_json::Deserializer::from_str(text);
    let decoded = StrictDecoder { depth: 0 }.deserialize(&mut deserializer);
    decoded.and_then(|value| deserializer.end().map(|()| value)).map_err(|error| refusal(text, &error))
}

/// Decodes one value and tracks its depth.
#[derive(Clone, Copy)]
struct StrictDecoder {
    depth: usize,
}

impl StrictDecoder {
    /// Returns the reader of a nested value. Fails beyond [`MAX_ARGUMENT_DEPTH`].
    fn descend<E: Error>(self) -> Result<Self, E> {
        if self.depth == MAX_ARGUMENT_DEPTH {
            return Err(E::custom(format_args!("nested deeper than {MAX_ARGUMENT_DEPTH} levels")));
        }
        Ok(Self { depth: self.depth + 1 })
    }
}

impl<'de> DeserializeSeed<'de> for StrictDecoder {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for StrictDecoder {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<Value, E> {
        // `Value::from` would turn a non-finite float into null.
        if value.is_finite() { Ok(value.into()) } else { Err(E::custom("number out of range")) }
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(Value::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<Value, A::Error> {
        let inner = self.descend()?;
        let mut object = Map::new();
        while let Some(key) = entries.next_key::<String>()? {
            match object.entry(key) {
                Entry::Occupied(entry) => {
                    return Err(A::Error::custom(format_args!("duplicate key '{}'", show_name(entry.key()))));
                }
                Entry::Vacant(entry) => {
                    entry.insert(entries.next_value_seed(inner)?);
                }
            }
        }
        Ok(Value::Object(object))
    }
}

fn refusal(text: &str, error: &serde_json::Error) -> ToolError {
    let (line, column) = (error.line(), error.column());
    let full_message = error.to_string();
    let problem =
        full_message.strip_suffix(&format!(" at line {line} column {column}")).unwrap_or(&full_message);
    let location = format!("at line {line} column {column}");
    ToolError::invalid_arguments(if error.is_eof() {
        format!("the arguments are not complete JSON: {problem} {location}")
    } else if error.is_data() {
        // `StrictDecoder` itself refused the text: it is well-formed JSON that violates one of our limits.
        format!("the arguments cannot be accepted: {problem} {location}")
    } else {
        match text_at(text, line, column) {
            Some(unexpected) => {
                format!("the arguments are not valid JSON {location}: {problem}, found {unexpected}")
            }
            None => format!("the arguments are not valid JSON {location}: {problem}"),
        }
    })
}

/// Returns a few characters of the text at the position of an error. Lines and columns count from 1, columns
/// in bytes.
fn text_at(text: &str, line: usize, column: usize) -> Option<String> {
    let line = text.split('\n').nth(line.checked_sub(1)?)?;
    let mut start = column.checked_sub(1)?.min(line.len());
    // The column can be inside a multi-byte character. Step back to the start of the character.
    while !line.is_char_boundary(start) {
        start -= 1;
    }
    let rest = line.get(start..)?;
    (!rest.is_empty()).then(|| format!("`{}`", show_text(rest, FOUND_CHARS)))
}

const FOUND_CHARS: usize = 16;
