//! Writes a result into a task file, as a fenced block that is never parsed as a call.
//!
//! A result is untrusted text, so there are three layers of defence. The info string is not `json`. The
//! content is one line of JSON without a backtick, so that it cannot end a fence. And the changed text is
//! parsed again, and must have the same blocks as before plus exactly one.

use portcullis_types::{ToolError, ToolOutput, ToolResult};
use serde_json::{Map, Value, json};

use crate::{
    fences::{Fence, fences},
    front_matter::newline_of,
    json_text,
    ledger::LedgerStatus,
    limits::MAX_RESULT_BYTES,
};

/// The info string of results.
const INFO: &str = "tool-result";

/// The fence of results. It is longer than the fence of a call, so that people can tell them apart. The
/// content has no backtick.
const FENCE: &str = "````";

/// Returns the content of a result's block: one line.
pub(crate) fn content(result: &ToolResult, sanitized: &[String]) -> Result<String, serde_json::Error> {
    let value = result.outcome.clone().into_result().ok().map(|output| value_of(&output));
    let whole = object(result, sanitized, value);
    let line = json_text::line(&whole)?;
    // Omit a long result: the audit log has the call in any case.
    if line.len() <= MAX_RESULT_BYTES {
        return Ok(line);
    }
    let note = format!(
        "the result is too long for this file; `portcullis audit log` has the call {}",
        result.call_id
    );
    json_text::line(&object(result, sanitized, Some(json!({ "left_out": note }))))
}

/// Returns the content of the block for a call that was refused.
pub(crate) fn refusal(code: &str, message: &str) -> Result<String, serde_json::Error> {
    json_text::line(&json!({ "status": LedgerStatus::Failed, "error": { "code": code, "message": message } }))
}

fn object(result: &ToolResult, sanitized: &[String], value: Option<Value>) -> Value {
    let mut object = Map::new();
    object.insert("tool".to_owned(), result.tool.as_str().into());
    object.insert("call_id".to_owned(), result.call_id.as_str().into());
    let status = if result.outcome.is_error() { "failed" } else { "success" };
    object.insert("status".to_owned(), status.into());
    if let Some(value) = value.filter(|_| !result.outcome.is_error()) {
        object.insert("result".to_owned(), value);
    }
    if let Some(error) = result.outcome.error() {
        object.insert("error".to_owned(), error_of(error));
    }
    if result.truncated {
        object.insert("truncated".to_owned(), true.into());
    }
    if let Some(hint) = result.rest_hint() {
        object.insert("rest".to_owned(), hint.into());
    }
    if !sanitized.is_empty() {
        object.insert("sanitized".to_owned(), sanitized.into());
    }
    Value::Object(object)
}

/// Returns the data of an output, or its text if it has no data.
fn value_of(output: &ToolOutput) -> Value {
    output.structured.clone().unwrap_or_else(|| output.joined_text().into())
}

fn error_of(error: &ToolError) -> Value {
    let mut object = json!({
        "kind": error.kind().as_str(),
        "code": error.code(),
        "message": error.message(),
    });
    if let Some(hint) = error.hint() {
        object["hint"] = hint.into();
    }
    object
}

/// Returns the body with a result below its block, or at its end if the block's container has no room.
/// Returns `None` if neither leaves the other blocks unchanged.
pub(crate) fn insert(body: &str, block: &Fence, content: &str) -> Option<String> {
    let newline = newline_of(body);
    let before = fences(body);
    // A result in a quote or a list item needs the container's prefix on each line. A list marker becomes spaces, because
    // it would begin a new item.
    let prefix: String =
        block.prefix.chars().map(|c| if matches!(c, '>' | ' ' | '\t') { c } else { ' ' }).collect();
    let below = format!("{newline}{prefix}{FENCE}{INFO}{newline}{prefix}{content}{newline}{prefix}{FENCE}");
    let at_end = format!("{newline}{newline}{FENCE}{INFO}{newline}{content}{newline}{FENCE}{newline}");
    [(block.span.end, below), (body.len(), at_end)].into_iter().find_map(|(at, addition)| {
        let changed = format!("{}{addition}{}", &body[..at], &body[at..]);
        has_one_more(&before, &fences(&changed), (at, addition.len()), content).then_some(changed)
    })
}

/// Returns whether `after` has the blocks of `before`, shifted by the addition, with the result in between.
fn has_one_more(before: &[Fence], after: &[Fence], (at, length): (usize, usize), content: &str) -> bool {
    // The number of blocks before the addition.
    let index = before.iter().take_while(|fence| fence.span.end <= at).count();
    if after.len() != before.len() + 1 {
        return false;
    }
    // Text of the file or of the result could end a block early, or begin one. So parse the changed text again, and
    // accept it only if every other block is the same, and the new one has the whole result and lies in the addition.
    let is_result = |fence: &Fence| {
        fence.opening == format!("{FENCE}{INFO}")
            && fence.is_closed
            && fence.code.strip_suffix('\n') == Some(content)
            && at < fence.span.start
            && fence.span.end <= at + length
    };
    let is_same = |old: &Fence, new: &Fence, shift: usize| {
        let span = old.span.start + shift..old.span.end + shift;
        *new == Fence { span, ..old.clone() }
    };
    let (head, tail) = after.split_at(index);
    let Some((result, tail)) = tail.split_first() else { return false };
    is_result(result)
        && before[..index].iter().zip(head).all(|(old, new)| is_same(old, new, 0))
        && before[index..].iter().zip(tail).all(|(old, new)| is_same(old, new, length))
}

#[cfg(test)]
mod tests;
