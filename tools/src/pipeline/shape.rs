//! Step 6: the result becomes fit to be shown: bounded text, no host path, no secret.

use portcullis_policy::Grant;
use portcullis_types::{Content, ToolError, ToolErrorKind, ToolOutput};
use serde_json::{Map, Value, json};

use super::{Trail, attempt::GuestUsage, check::Notes, run::RawOutcome};
use crate::{
    call::{Caller, random_id},
    output_store::{OutputOwner, OutputStore},
};

/// The most text of an error that a model gets; results have their own limit.
const MAX_ERROR_BYTES: usize = 4096;

/// A result as its caller will see it.
#[derive(Debug)]
pub(crate) struct Shaped {
    pub(super) outcome: Result<ToolOutput, ToolError>,
    pub(super) details: Value,
    pub(super) truncated: bool,
    pub(super) original_bytes: u64,
    pub(super) usage: Option<GuestUsage>,
}

/// Shapes what came of a call, whether it ran or was refused.
pub(crate) fn shape(
    raw: Result<RawOutcome, ToolError>,
    store: &OutputStore,
    caller: &Caller,
    trail: &Trail,
) -> Shaped {
    let raw = match raw {
        Ok(raw) => raw,
        Err(error) => return failed(error, Notes::default(), None, trail),
    };
    let mut output = match raw.result {
        Ok(output) => output,
        Err(error) => return failed(error, raw.checked.notes, raw.usage, trail),
    };
    let mut details = details(std::mem::take(&mut output.details), raw.checked.notes);
    let limit = usize::try_from(raw.grant.limits.max_output.0).unwrap_or(usize::MAX);
    let original_bytes = output.content.iter().filter_map(Content::as_text).map(str::len).sum::<usize>();
    let pages_itself = raw.checked.tool.pages_itself() && !raw.has_grown;
    let truncated = original_bytes > limit && !pages_itself;
    if truncated {
        if let Some(id) = keep(&whole(&output, raw.trailer.as_deref()), &raw.grant, store, caller, trail) {
            details.insert("output_id".to_owned(), id.into());
        }
        truncate(&mut output.content, limit, original_bytes);
    }
    if let Some(trailer) = &raw.trailer {
        append(&mut output.content, trailer);
    }
    Shaped {
        outcome: Ok(output),
        details: details.into(),
        truncated,
        original_bytes: original_bytes as u64,
        usage: raw.usage,
    }
}

/// The text with nothing cut.
fn whole(output: &ToolOutput, trailer: Option<&str>) -> String {
    let mut text = output.joined_text();
    if let Some(trailer) = trailer {
        append_line(&mut text, trailer);
    }
    text
}

/// Puts a trailer on a line of its own after the last text.
fn append(content: &mut Vec<Content>, trailer: &str) {
    match content.last_mut() {
        Some(Content::Text { text }) => append_line(text, trailer),
        _ => content.push(Content::text(trailer)),
    }
}

fn append_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

/// Keeps the whole text for `output_read`. A store that cannot take it costs the rest of the text, not the
/// call.
fn keep(text: &str, grant: &Grant, store: &OutputStore, caller: &Caller, trail: &Trail) -> Option<String> {
    // A provider may reuse its ids; a stored output must not take another's place.
    let id = random_id("out");
    let owner = OutputOwner { agent_id: caller.agent_id.clone(), run_id: caller.run_id.clone() };
    let grant = json!({ "tool": &*trail.row.tool, "grant": grant });
    match store.put(&id, &owner, &grant, text) {
        Ok(()) => Some(id),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot keep a whole output");
            None
        }
    }
}

/// Cuts the text blocks to `limit` bytes together and says so (specification 004, "Output Truncation").
fn truncate(content: &mut Vec<Content>, limit: usize, original_bytes: usize) {
    let mut left = limit;
    let mut is_cut = false;
    content.retain_mut(|block| {
        let Content::Text { text } = block else { return true };
        if is_cut {
            return false;
        }
        if text.len() > left {
            text.truncate(text.floor_char_boundary(left));
            text.push_str("\n[output truncated — original size: ");
            text.push_str(&with_commas(original_bytes));
            text.push_str(" bytes]");
            is_cut = true;
            return true;
        }
        left -= text.len();
        true
    });
}

/// A number with a comma before each group of three digits.
pub(crate) fn with_commas(number: usize) -> String {
    let digits = number.to_string();
    let first = digits.len() % 3;
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index != 0 && index % 3 == first {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Details as the host hands them on: the tool's own, and what was done to its arguments.
fn details(own: Value, notes: Notes) -> Map<String, Value> {
    let mut details = match own {
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => Map::from_iter([("tool".to_owned(), other)]),
    };
    // These are the host's words; a tool's own under the same names would pass for them.
    for key in ["repaired", "ignored", "output_id", "hooked", "tries"] {
        details.remove(key);
    }
    if notes.hooked {
        details.insert("hooked".to_owned(), true.into());
    }
    if notes.tries > 1 {
        details.insert("tries".to_owned(), notes.tries.into());
    }
    for (key, notes) in [("repaired", notes.repaired), ("ignored", notes.ignored)] {
        if !notes.is_empty() {
            details.insert(key.to_owned(), notes.into());
        }
    }
    details
}

fn failed(error: ToolError, notes: Notes, usage: Option<GuestUsage>, trail: &Trail) -> Shaped {
    if error.kind() == ToolErrorKind::Internal {
        tracing::error!(
            tool = %trail.row.tool,
            call_id = %trail.row.call_id,
            detail = error.operator_detail().unwrap_or_default(),
            "a tool call failed on our side"
        );
    }
    let error = bounded(error);
    Shaped {
        details: details(Value::Null, notes).into(),
        truncated: false,
        original_bytes: error.message().len() as u64,
        outcome: Err(error),
        usage,
    }
}

/// Error texts are a guest's or a program's word for word, up to a limit.
fn bounded(error: ToolError) -> ToolError {
    let hint = error.hint().map(cut);
    if error.message().len() <= MAX_ERROR_BYTES && hint.as_deref() == error.hint() {
        return error;
    }
    let shorter = ToolError::new(error.kind(), cut(error.message())).with_code(error.code().to_owned());
    match hint {
        Some(hint) => shorter.with_hint(hint),
        None => shorter,
    }
}

fn cut(text: &str) -> String {
    if text.len() <= MAX_ERROR_BYTES {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(MAX_ERROR_BYTES);
    format!("{}… [{} bytes in all]", &text[..end], with_commas(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(blocks: &[&str], limit: usize, expected: &[&str]) {
        let mut content: Vec<Content> = blocks.iter().map(|text| Content::text(*text)).collect();
        let bytes = blocks.iter().map(|text| text.len()).sum();
        truncate(&mut content, limit, bytes);
        let texts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
        assert_eq!(texts, expected);
    }

    #[test]
    fn text_is_cut_at_the_limit_on_a_character_boundary() {
        check(&["abcdef"], 4, &["abcd\n[output truncated — original size: 6 bytes]"]);
        check(&["aä"], 2, &["a\n[output truncated — original size: 3 bytes]"]);
        check(&["ab", "cd", "ef"], 3, &["ab", "c\n[output truncated — original size: 6 bytes]"]);
        check(&["ab", "cd"], 2, &["ab", "\n[output truncated — original size: 4 bytes]"]);
    }

    #[test]
    fn a_trailer_stands_on_a_line_of_its_own_whatever_was_cut() {
        for (text, expected) in [("", "[t]"), ("out\n", "out\n[t]"), ("out", "out\n[t]")] {
            let mut content = vec![Content::text(text)];
            append(&mut content, "[t]");
            assert_eq!(content, [Content::text(expected)]);
            assert_eq!(whole(&ToolOutput::text(text), Some("[t]")), expected);
        }
    }

    #[test]
    fn sizes_have_commas_as_the_specification_prints_them() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (142_857, "142,857"), (1_234_567, "1,234,567")]
        {
            assert_eq!(with_commas(number), text);
        }
    }

    #[test]
    fn a_tool_cannot_speak_as_the_host_in_its_details() {
        let own = json!({"output_id": "call_of_another", "repaired": ["x"], "lines": 3});
        let notes = Notes { repaired: vec!["limit".into()], ..Notes::default() };
        assert_eq!(Value::from(details(own, notes)), json!({"lines": 3, "repaired": ["limit"]}));
    }

    #[test]
    fn long_error_texts_are_bounded_and_keep_their_kind() {
        let error = bounded(ToolError::not_found("x".repeat(10_000)).with_hint("h"));
        assert_eq!(error.kind(), ToolErrorKind::NotFound);
        assert!(error.message().len() < MAX_ERROR_BYTES + 40);
        assert_eq!(error.hint(), Some("h"));
        let error = bounded(ToolError::denied("no").with_hint("x".repeat(10_000)));
        assert!(error.hint().is_some_and(|hint| hint.len() < MAX_ERROR_BYTES + 40));
        assert_eq!(error.message(), "no");
    }
}
