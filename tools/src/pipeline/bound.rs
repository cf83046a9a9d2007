//! The limit of a result. Truncates the content to what a caller sees, marks the cut, and formats the whole
//! as one text for paging. Every field of every kind of content counts, because a tool can put any amount of
//! data into each field.

use portcullis_types::escape_for_display;
use portcullis_types::{Content, ToolOutput, json_bytes};
use serde_json::Value;

use super::shape::MAX_DETAILS_BYTES;

/// The maximum number of blocks of content in a result: 256. Empty blocks add no bytes of content, but a million of
/// them would be megabytes on the wire.
pub(crate) const MAX_BLOCKS: usize = 256;

/// The maximum number of bytes of a URI, a name or a media type in the note about an omitted block.
const MAX_NAMED_BYTES: usize = 128;

/// Whether content exceeds the limit.
pub(super) fn is_over(content: &[Content], bytes: usize, limit: usize) -> bool {
    bytes > limit || content.len() > MAX_BLOCKS
}

/// Truncates content to `limit` bytes in total, and marks the cut. Text is truncated. Any other block that is
/// too long is replaced by a note with its kind, type and size, because a part of an image is useless.
pub(super) fn cut(content: &mut Vec<Content>, limit: usize, original_bytes: usize) {
    let mut remaining = limit;
    let mut retained_blocks = Vec::new();
    for block in std::mem::take(content) {
        if retained_blocks.len() == MAX_BLOCKS {
            break;
        }
        let bytes = block.bytes();
        if bytes <= remaining {
            remaining -= bytes;
            retained_blocks.push(block);
            continue;
        }
        match block {
            Content::Text { mut text } => {
                text.truncate(text.floor_char_boundary(remaining));
                text.push('\n');
                text.push_str(&truncation_mark(original_bytes));
                retained_blocks.push(Content::text(text));
                *content = retained_blocks;
                return;
            }
            // The other fields of the resource fit, so truncate only its text.
            Content::Resource { uri, mime_type, text: Some(mut text), blob: None }
                if bytes - text.len() <= remaining =>
            {
                text.truncate(text.floor_char_boundary(remaining - (bytes - text.len())));
                retained_blocks.push(Content::Resource { uri, mime_type, text: Some(text), blob: None });
                break;
            }
            other_block => {
                let note = note(&other_block);
                if note.len() > remaining {
                    break;
                }
                remaining -= note.len();
                retained_blocks.push(Content::text(note));
            }
        }
    }
    retained_blocks.push(Content::text(truncation_mark(original_bytes)));
    *content = retained_blocks;
}

/// Truncates a partial result. The rest is not stored, because the final result is still to come.
pub(super) fn cut_partial(partial: &mut ToolOutput, limit: usize) {
    let bytes = partial.content_bytes();
    if is_over(&partial.content, bytes, limit) {
        cut(&mut partial.content, limit, bytes);
    }
    if partial.structured_bytes() > limit {
        partial.structured = None;
    }
    if !partial.details.is_null() && json_bytes(&partial.details) > MAX_DETAILS_BYTES {
        partial.details = Value::Null;
    }
}

/// Formats the mark where content was cut.
pub(super) fn truncation_mark(original_bytes: usize) -> String {
    format!("[output truncated — original size: {} bytes]", format_with_commas(original_bytes))
}

/// Formats the whole result as one text. Text blocks are unchanged. Any other block follows a line that
/// describes it, with binary data in the tool's base64.
pub(super) fn full_text(output: &ToolOutput, with_data: bool, trailer: Option<&str>) -> String {
    let blocks: Vec<String> = output.content.iter().map(written_out).collect();
    let mut text = blocks.join("\n");
    if let Some(data) = output.structured.as_ref().filter(|_| with_data) {
        append_line(&mut text, "[structured result]");
        append_line(&mut text, &data.to_string());
    }
    if let Some(trailer) = trailer {
        append_line(&mut text, trailer);
    }
    text
}

/// Appends a line to the last text block, or as a new block.
pub(super) fn append(content: &mut Vec<Content>, line: &str) {
    match content.last_mut() {
        Some(Content::Text { text }) => append_line(text, line),
        _ => content.push(Content::text(line)),
    }
}

fn append_line(text: &mut String, line: &str) {
    if !text.is_empty() && !text.ends_with('\n') {
        text.push('\n');
    }
    text.push_str(line);
}

/// Formats a number with thousands separators.
pub(crate) fn format_with_commas(number: usize) -> String {
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

/// Formats the note that replaces an omitted block.
fn note(block: &Content) -> String {
    let size = format_with_commas(block.bytes());
    format!("[{}: {size} bytes, over the limit, left out]", described(block))
}

fn written_out(block: &Content) -> String {
    // Omit fields that the describing line shows in full.
    let is_long = |field: &String| field.len() > MAX_NAMED_BYTES;
    let mut fields: Vec<&String> = Vec::new();
    match block {
        Content::Text { text } => return text.clone(),
        Content::Image { data, mime_type } | Content::Audio { data, mime_type } => {
            fields.extend(Some(mime_type).filter(|field| is_long(field)));
            fields.push(data);
        }
        Content::Resource { uri, mime_type, text, blob } => {
            fields
                .extend([Some(uri), mime_type.as_ref()].into_iter().flatten().filter(|field| is_long(field)));
            fields.extend([text, blob].into_iter().flatten());
        }
        Content::ResourceLink { uri, name, description, mime_type } => {
            fields.extend([name, uri].into_iter().filter(|field| is_long(field)));
            fields.extend([mime_type, description].into_iter().flatten());
        }
        _ => {}
    }
    let mut text = format!("[{}]", described(block));
    for field in fields {
        text.push('\n');
        text.push_str(field);
    }
    text
}

/// Describes a block by its kind and its fields.
fn described(block: &Content) -> String {
    let typed = |mime_type: &Option<String>| {
        mime_type.as_deref().map_or_else(|| "no type".to_owned(), escape_truncated)
    };
    match block {
        Content::Text { .. } => "text".to_owned(),
        Content::Image { mime_type, .. } => format!("image, {}, base64", escape_truncated(mime_type)),
        Content::Audio { mime_type, .. } => format!("audio, {}, base64", escape_truncated(mime_type)),
        Content::Resource { uri, mime_type, blob: Some(_), .. } => {
            format!("resource {}, {}, base64", escape_truncated(uri), typed(mime_type))
        }
        Content::Resource { uri, mime_type, .. } => {
            format!("resource {}, {}", escape_truncated(uri), typed(mime_type))
        }
        Content::ResourceLink { uri, name, .. } => {
            format!("link {}, {}", escape_truncated(name), escape_truncated(uri))
        }
        _ => "content of another kind".to_owned(),
    }
}

/// Escapes the start of a tool's text, for use in a line of the host.
fn escape_truncated(text: &str) -> String {
    let escaped = escape_for_display(&text[..text.floor_char_boundary(MAX_NAMED_BYTES)]).to_string();
    let cut_at = escaped.floor_char_boundary(MAX_NAMED_BYTES);
    if cut_at < escaped.len() || text.len() > MAX_NAMED_BYTES {
        format!("{}…", &escaped[..cut_at])
    } else {
        escaped
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(blocks: &[&str], limit: usize, expected: &[&str]) {
        let mut content: Vec<Content> = blocks.iter().map(|text| Content::text(*text)).collect();
        let bytes = blocks.iter().map(|text| text.len()).sum();
        cut(&mut content, limit, bytes);
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

    fn of(blocks: serde_json::Value) -> Vec<Content> {
        serde_json::from_value(blocks).expect("content")
    }

    #[test]
    fn other_kinds_are_left_out_whole_and_named() {
        let long_text = "A".repeat(1000);
        for (block, note) in [
            (
                json!({"type": "image", "data": long_text, "mimeType": "image/png"}),
                "image, image/png, base64: 1,009",
            ),
            (
                json!({"type": "audio", "data": long_text, "mimeType": "audio/wav"}),
                "audio, audio/wav, base64: 1,009",
            ),
            (
                json!({"type": "resource", "uri": "x:1", "blob": long_text}),
                "resource x:1, no type, base64: 1,003",
            ),
            (
                json!({"type": "resource", "uri": "x:1", "text": long_text, "blob": ""}),
                "resource x:1, no type, base64: 1,003",
            ),
            (
                json!({"type": "resource_link", "uri": "x:1", "name": "n", "description": long_text}),
                "link n, x:1: 1,004",
            ),
        ] {
            let blocks =
                json!([{"type": "text", "text": "before"}, block, {"type": "text", "text": "after"}]);
            let mut content = of(blocks);
            let bytes = content.iter().map(Content::bytes).sum();
            cut(&mut content, 200, bytes);
            let note = format!("[{note} bytes, over the limit, left out]");
            let texts: Vec<_> = content.iter().filter_map(Content::as_text).collect();
            assert_eq!(texts, ["before", &note, "after", &truncation_mark(bytes)]);
        }
    }

    #[test]
    fn no_field_and_no_number_of_blocks_exceeds_the_limit() {
        let long_text = "\u{1b}é".repeat(1000);
        let block = [
            json!({"type": "image", "data": "", "mimeType": long_text}),
            json!({"type": "resource", "uri": long_text, "text": "t"}),
            json!({"type": "resource", "uri": "x:1", "mimeType": long_text, "text": long_text}),
            json!({"type": "resource", "uri": "x:1", "text": long_text}),
            json!({"type": "resource_link", "uri": long_text, "name": long_text, "mimeType": long_text}),
            json!({"type": "text", "text": ""}),
        ];
        for limit in [0, 1, 10, 300, 1000, 5000] {
            for block in &block {
                let mut content = of(json!(vec![block; 400]));
                let bytes = content.iter().map(Content::bytes).sum();
                cut(&mut content, limit, bytes);
                assert!(content.len() <= MAX_BLOCKS + 1, "{limit} {block}");
                let total_bytes: usize = content.iter().map(Content::bytes).sum();
                assert!(
                    total_bytes <= limit + truncation_mark(bytes).len() + 1,
                    "{limit} {block}: {total_bytes}"
                );
                let last_text = content.last().and_then(Content::as_text).expect("a text");
                assert!(last_text.ends_with(&truncation_mark(bytes)), "{limit} {block}: {last_text}");
            }
        }
    }

    #[test]
    fn a_trailer_has_its_own_line_wherever_the_text_was_cut() {
        for (text, expected) in [("", "[t]"), ("out\n", "out\n[t]"), ("out", "out\n[t]")] {
            let mut content = vec![Content::text(text)];
            append(&mut content, "[t]");
            assert_eq!(content, [Content::text(expected)]);
            assert_eq!(full_text(&ToolOutput::text(text), false, Some("[t]")), expected);
        }
    }

    #[test]
    fn the_whole_of_a_result_has_every_field_that_may_be_long() {
        let content = of(json!([
            {"type": "text", "text": "t"},
            {"type": "image", "data": "AA==", "mimeType": "image/png"},
            {"type": "resource", "uri": "x:1", "text": "inside"},
            {"type": "resource_link", "uri": "x:2", "name": "n", "description": "d"},
        ]));
        let output = ToolOutput { content, structured: Some(json!({"n": 1})), ..ToolOutput::default() };
        let text = "t\n[image, image/png, base64]\nAA==\n[resource x:1, no type]\ninside\n[link n, x:2]\nd";
        assert_eq!(full_text(&output, false, None), text);
        assert_eq!(full_text(&output, true, None), format!("{text}\n[structured result]\n{{\"n\":1}}"));
    }

    #[test]
    fn sizes_have_commas_as_the_specification_prints_them() {
        for (number, text) in
            [(0, "0"), (999, "999"), (1000, "1,000"), (142_857, "142,857"), (1_234_567, "1,234,567")]
        {
            assert_eq!(format_with_commas(number), text);
        }
    }
}
