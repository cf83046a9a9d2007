//! Reads a block as a call: `{"tool_call": {"name": "…", "parameters": {…}}}`.

use serde::Deserialize;
use serde_json::{Map, Value, value::RawValue};

/// A call as a block requests it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct BlockCall {
    pub(crate) tool: String,
    /// The JSON text of the parameters, as written except for removed control characters.
    pub(crate) parameters: String,
    /// The parameters whose control characters were removed.
    pub(crate) sanitized: Vec<String>,
}

/// Why a block is not a call.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotACallReason {
    /// The block is JSON without the key `tool_call`: an example, or data.
    #[error("the block has no `tool_call`, so it is not a call")]
    OtherData,
    /// The block is not well-formed JSON, and does not look like a call.
    #[error("the block is not well-formed JSON, and has no `tool_call`: {0}")]
    OtherText(serde_json::Error),
    /// The block is not well-formed JSON.
    #[error("the block is not well-formed JSON: {0}")]
    Syntax(serde_json::Error),
    /// The block has a `tool_call` of another shape.
    #[error("the block must be {{\"tool_call\": {{\"name\": \"…\", \"parameters\": {{…}}}}}}: {0}")]
    Shape(serde_json::Error),
    /// The parameters are not an object.
    #[error("`parameters` must be an object")]
    Parameters,
    /// A text has the character U+0000.
    #[error("the block has the character U+0000, which no parameter may have")]
    Nul,
}

impl NotACallReason {
    /// Returns the stable code.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::OtherData => "no_call",
            Self::OtherText(_) | Self::Syntax(_) => "malformed_json",
            Self::Shape(_) | Self::Parameters => "malformed_call",
            Self::Nul => "nul_character",
        }
    }

    /// Returns whether the block is data for people. It stays unchanged, and does not stop its task.
    pub(crate) fn is_other_data(&self) -> bool {
        matches!(self, Self::OtherData | Self::OtherText(_))
    }

    fn not_json(code: &str, error: serde_json::Error) -> Self {
        if code.contains("tool_call") { Self::Syntax(error) } else { Self::OtherText(error) }
    }
}

impl BlockCall {
    /// Parses a block's content.
    ///
    /// # Errors
    /// [`NotACallReason`] if the block is not a call in JSON, or has the character U+0000.
    pub(crate) fn parse(code: &str) -> Result<Self, NotACallReason> {
        let top: TopLevel<'_> = match serde_json::from_str(code) {
            Ok(top) => top,
            Err(error) if error.is_data() => match serde_json::from_str::<Value>(code) {
                Ok(Value::Object(object)) if object.contains_key("tool_call") => {
                    return Err(NotACallReason::Shape(error));
                }
                Ok(_) => return Err(NotACallReason::OtherData),
                Err(error) => return Err(NotACallReason::not_json(code, error)),
            },
            Err(error) => return Err(NotACallReason::not_json(code, error)),
        };
        // Keep the raw text: a parsed value would lose duplicate keys, which the pipeline must refuse.
        let raw = top.tool_call.parameters.get();
        if !raw.starts_with('{') {
            return Err(NotACallReason::Parameters);
        }
        let (Some(tool), Some(parameters)) =
            (without_controls(&top.tool_call.name), without_escaped_controls(raw))
        else {
            return Err(NotACallReason::Nul);
        };
        let sanitized = if parameters == raw { Vec::new() } else { changed_fields(raw, &parameters) };
        Ok(Self { tool, parameters, sanitized })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TopLevel<'a> {
    #[serde(borrow)]
    tool_call: ToolCallObject<'a>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolCallObject<'a> {
    name: String,
    #[serde(borrow)]
    parameters: &'a RawValue,
}

/// Returns whether a character is removed from texts: control characters other than tab and line breaks,
/// and bidirectional controls. Other characters stay, because a changed text would be a different call.
fn is_removed(character: char) -> bool {
    let is_bidirectional = matches!(character, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    is_bidirectional || (character.is_control() && !matches!(character, '\t' | '\n' | '\r'))
}

/// Removes these characters from a text. Returns `None` if the text has U+0000.
fn without_controls(text: &str) -> Option<String> {
    (!text.contains('\0')).then(|| text.chars().filter(|&character| !is_removed(character)).collect())
}

/// Removes these characters from the strings of a valid JSON text, literal or as escape sequences. Everything
/// else stays as written, including numbers and duplicate keys, which the pipeline refuses. Returns `None` if
/// a string has U+0000.
fn without_escaped_controls(json: &str) -> Option<String> {
    let mut out = String::with_capacity(json.len());
    let mut rest = json;
    // Outside strings, valid JSON has neither a backslash nor any of the removed characters.
    while let Some(character) = rest.chars().next() {
        let (length, decoded) =
            if character == '\\' { escape(rest) } else { (character.len_utf8(), character) };
        match decoded {
            '\0' => return None,
            decoded if is_removed(decoded) => {}
            _ => out.push_str(&rest[..length]),
        }
        rest = &rest[length..];
    }
    Some(out)
}

/// Returns the length of the escape sequence at the start of a JSON text, and its character. Half of a
/// surrogate pair counts as U+FFFD, because no removed character needs a pair.
fn escape(rest: &str) -> (usize, char) {
    match rest.as_bytes().get(1) {
        Some(b'u') => {
            let unit = rest.get(2..6).and_then(|digits| u32::from_str_radix(digits, 16).ok());
            (6.min(rest.len()), unit.and_then(char::from_u32).unwrap_or(char::REPLACEMENT_CHARACTER))
        }
        Some(b'b') => (2, '\u{8}'),
        Some(b'f') => (2, '\u{c}'),
        Some(b'n') => (2, '\n'),
        // All other escapes stand for characters that are never removed.
        _ => (2.min(rest.len()), '\\'),
    }
}

/// Returns the names of the parameters whose values differ.
fn changed_fields(before: &str, after: &str) -> Vec<String> {
    let read = |text| serde_json::from_str::<Map<String, Value>>(text).unwrap_or_default();
    let (before, after) = (read(before), read(after));
    after
        .iter()
        .filter(|(name, value)| before.get(*name) != Some(value))
        .map(|(name, _)| name.clone())
        .collect()
}

#[cfg(test)]
mod tests;
