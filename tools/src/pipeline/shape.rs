//! Step 6: prepares the result for the caller. It limits every part of the result, and stores the full text
//! of a truncated result.

use portcullis_policy::{FlowLabel, Grant, ToolOrigin};
use portcullis_types::{
    MAX_FINAL_FRAME_BYTES, ToolError, ToolErrorCode, ToolErrorKind, ToolOutcome, ToolOutput, json_bytes,
};
use serde_json::{Map, Value, json};

use super::{
    Host, PendingRecord,
    backend::{PendingResult, ResourceUsage},
    bound::{append, cut, format_with_commas, full_text, is_over, truncation_mark},
    check::CallNotes,
    run::{HookEdit, RawOutcome},
};
use crate::{
    call::{Caller, random_id},
    output_store::OutputOwner,
    registered::RegisteredTool,
    stored_grant::StoredGrant,
};

/// The maximum length of an error message for a model, and of a hint: 4 KiB each, without the note on a cut.
/// Results have their own limit.
const MAX_ERROR_BYTES: usize = 4096;

/// The maximum length of the code of an error.
const MAX_CODE_BYTES: usize = 64;

/// The maximum length of a tool's details, as JSON: 64 KiB. Details are for people and logs. Longer details
/// are withheld as a whole.
pub(super) const MAX_DETAILS_BYTES: usize = 64 << 10;

/// The maximum number of notes on arguments, without the note that counts the rest, and the maximum length of
/// a note in bytes. A model can invent thousands of fields.
const MAX_NOTES: usize = 64;
const MAX_NOTE_BYTES: usize = 256;

/// The maximum size of a result before it is shaped: the limit of a guest's frame. The output of a command
/// has the limit `shell.output` of the policy instead.
const MAX_RESULT_BYTES: usize = MAX_FINAL_FRAME_BYTES;

/// A result as the caller gets it.
#[derive(Debug)]
pub(crate) struct Shaped {
    pub(super) outcome: ToolOutcome,
    pub(super) details: Value,
    pub(super) truncated: bool,
    pub(super) original_bytes: u64,
    pub(super) usage: Option<ResourceUsage>,
}

/// Shapes the outcome of a call that ran or was refused.
pub(crate) fn shape(
    raw: Result<RawOutcome, ToolError>,
    host: &Host,
    caller: &Caller,
    pending_record: &PendingRecord,
) -> Shaped {
    let RawOutcome { result, trailer, usage, pending, grant, checked, hook_edit } = match raw {
        Ok(raw) => raw,
        Err(error) => return shape_failure(error, CallNotes::default(), None, pending_record),
    };
    let (tool, notes) = (&checked.tool, checked.notes);
    let mut output = match result {
        Ok(output) => output,
        Err(error) => return shape_failure(error, notes, usage, pending_record),
    };
    let tool_details = std::mem::take(&mut output.details);
    let size = Size::measure(&output, &tool_details, tool);
    if size.total_bytes() > MAX_RESULT_BYTES && !tool.backend().bounds_results() {
        return shape_failure(too_large(size.total_bytes()), notes, usage, pending_record);
    }
    if let Some(PendingResult { id, expires_at }) = pending {
        return Shaped {
            outcome: ToolOutcome::Pending { id, expires: expires_at },
            details: details(Value::Null, notes).into(),
            truncated: false,
            original_bytes: 0,
            usage,
        };
    }
    // The order matters from here on. The trailer comes from the whole result. Then the full text is stored,
    // then parts are removed, and at last the mark and the trailer follow the remaining text.
    let partial_content = PartialContent::from_details(&tool_details, tool);
    let mut rest_note = page_note(&tool_details, tool);
    let mut details = details(tool_details, notes);
    let excess = ExceededLimits::measure(&output, &size, tool, &grant, hook_edit);
    let trailer = partial_content.as_ref().map(PartialContent::trailer).or(trailer);
    if excess.exceeds() {
        // Build the full text before removing anything.
        let full_text = full_text(&output, excess.data_not_in_text, trailer.as_deref());
        if let Some(id) = store_output(&full_text, &grant, host, caller, pending_record) {
            rest_note = rest_of_stored(partial_content.as_ref(), rest_note, &id);
            details.insert("output_id".to_owned(), id.into());
        }
    }
    // The trailer follows the shown text, which may be truncated.
    let shown_trailer = match &partial_content {
        Some(partial_content) if excess.content => {
            // If a hook changed the result, the shown bytes can differ from the file's bytes.
            let shown_length = match hook_edit {
                HookEdit::None => shown_bytes(&output, excess.limit),
                HookEdit::Changed | HookEdit::Lengthened => None,
            };
            partial_content.trailer_of_cut(size.content, shown_length)
        }
        _ => trailer,
    };
    let missing_bytes = partial_content.as_ref().map_or(0, PartialContent::missing_bytes);
    let original_bytes = size.content.saturating_add(missing_bytes);
    excess.leave_out(&mut output, &mut details, &size, original_bytes);
    if partial_content.is_some() && !excess.content {
        append(&mut output.content, &truncation_mark(original_bytes));
    }
    if let Some(trailer) = &shown_trailer {
        append(&mut output.content, trailer);
    }
    details.extend(rest_note.map(|rest_note| ("rest".to_owned(), rest_note.into())));
    Shaped {
        outcome: ToolOutcome::Output(output),
        details: details.into(),
        truncated: excess.exceeds() || partial_content.is_some(),
        original_bytes: size.total_bytes().saturating_add(missing_bytes) as u64,
        usage,
    }
}

/// The parts of a result that exceed the call's limit.
struct ExceededLimits {
    /// The limit, in bytes.
    limit: usize,
    content: bool,
    data: bool,
    /// Whether the data exceeds the limit and the text does not contain it.
    data_not_in_text: bool,
}

impl ExceededLimits {
    fn measure(
        output: &ToolOutput,
        size: &Size,
        tool: &RegisteredTool,
        grant: &Grant,
        hook_edit: HookEdit,
    ) -> Self {
        let limit = usize::try_from(grant.limits.max_output.0).unwrap_or(usize::MAX);
        let exceeds_limit = size.data > limit;
        Self {
            limit,
            // A tool that pages its result enforces the limit itself, unless a hook made the result longer.
            content: is_over(&output.content, size.content, limit)
                && (!tool.pages_itself() || hook_edit == HookEdit::Lengthened),
            data: exceeds_limit,
            // If the text is the data as JSON, the stored text already contains the data.
            data_not_in_text: exceeds_limit && !is_text_of_data(output),
        }
    }

    fn exceeds(&self) -> bool {
        self.content || self.data
    }

    /// Removes the parts of a result that exceed the limit. `original` is the size of the content in bytes.
    fn leave_out(
        &self,
        output: &mut ToolOutput,
        details: &mut Map<String, Value>,
        size: &Size,
        original: usize,
    ) {
        if self.content {
            cut(&mut output.content, self.limit, original);
        }
        if self.data {
            output.structured = None;
            withhold(details, "structured", size.data);
        }
        // Add the line after truncating, which would otherwise remove it.
        if self.data_not_in_text {
            let line =
                format!("[structured result withheld — its size: {} bytes]", format_with_commas(size.data));
            append(&mut output.content, &line);
        }
    }
}

/// The size of a result, in bytes.
struct Size {
    content: usize,
    data: usize,
    /// The details of a foreign module's or the embedding program's tool, which are the tool's own text. The
    /// details of a shipped tool come from the host, and count as 0.
    details: usize,
}

impl Size {
    fn measure(output: &ToolOutput, details: &Value, tool: &RegisteredTool) -> Self {
        let is_foreign = matches!(
            tool.descriptor().origin,
            ToolOrigin::ForeignModule | ToolOrigin::Native | ToolOrigin::External
        );
        Self {
            content: output.content_bytes(),
            data: output.structured_bytes(),
            details: if is_foreign && !details.is_null() { json_bytes(details) } else { 0 },
        }
    }

    fn total_bytes(&self) -> usize {
        self.content.saturating_add(self.data).saturating_add(self.details)
    }
}

/// A result of a shipped tool that is only a part, such as a part of a long file. The details of other tools
/// are not trusted here, because they could make the host state a wrong length.
struct PartialContent {
    next_offset: u64,
    total_bytes: u64,
}

impl PartialContent {
    fn from_details(details: &Value, tool: &RegisteredTool) -> Option<Self> {
        if tool.descriptor().origin != ToolOrigin::ShippedModule {
            return None;
        }
        let number = |key: &str| details.get(key).and_then(Value::as_u64);
        let (next, total) = (number("next_byte_offset")?, number("total_bytes")?);
        (next < total).then_some(Self { next_offset: next, total_bytes: total })
    }

    /// The number of bytes that are not in the result.
    fn missing_bytes(&self) -> usize {
        usize::try_from(self.total_bytes - self.next_offset).unwrap_or(usize::MAX)
    }

    /// Tells the model how to continue reading after the part.
    fn trailer(&self) -> String {
        let total = usize::try_from(self.total_bytes).unwrap_or(usize::MAX);
        format!(
            "[this is not the end: the file has {} bytes; read on with `byte_offset` {}]",
            format_with_commas(total),
            self.next_offset
        )
    }

    /// Tells the model how to continue reading after a part of `bytes` that was truncated to its first
    /// `shown_length` bytes. `None` if the file offsets of the shown bytes are unknown; then
    /// [`PartialContent::rest_of_part`] points to the whole part.
    fn trailer_of_cut(&self, bytes: usize, shown_length: Option<usize>) -> Option<String> {
        let start = self.next_offset.checked_sub(bytes as u64)?;
        let next_offset = start + shown_length? as u64;
        let commas = |number| format_with_commas(usize::try_from(number).unwrap_or(usize::MAX));
        Some(format!(
            "[this is not the end: of the file's {} bytes these are {} to {}; read on with `byte_offset` {next_offset}]",
            commas(self.total_bytes),
            commas(start),
            commas(next_offset),
        ))
    }

    /// Tells the model how to read the stored part of a truncated result.
    fn rest_of_part(&self, id: &str) -> String {
        let next = usize::try_from(self.next_offset).unwrap_or(usize::MAX);
        format!(
            "[up to byte {} of the file: `output_read` with `call_id` \"{id}\"]",
            format_with_commas(next)
        )
    }
}

/// Tells the model how to read the rest of a part or page that is stored under `id`. `None` for other results.
fn rest_of_stored(
    partial_content: Option<&PartialContent>,
    page: Option<String>,
    id: &str,
) -> Option<String> {
    match (partial_content, page) {
        (Some(partial_content), _) => Some(partial_content.rest_of_part(id)),
        (None, Some(page)) => {
            Some(format!("[the whole page: `output_read` with `call_id` \"{id}\"]\n{page}"))
        }
        (None, None) => None,
    }
}

/// Returns the number of shown bytes of a truncated result, if the result is a single text.
fn shown_bytes(output: &ToolOutput, limit: usize) -> Option<usize> {
    match output.content.as_slice() {
        [block] => block.as_text().map(|text| text.floor_char_boundary(limit)),
        _ => None,
    }
}

/// Tells the model which page of a stored output this is. `None` for results of other tools.
fn page_note(details: &Value, tool: &RegisteredTool) -> Option<String> {
    if !tool.pages_itself() {
        return None;
    }
    let number = |key: &str| details.get(key).and_then(Value::as_u64);
    let (offset, total) = (number("offset")?, number("total_bytes")?);
    let commas = |number| format_with_commas(usize::try_from(number).unwrap_or(usize::MAX));
    Some(match number("next_offset") {
        Some(next) => format!(
            "[bytes {} to {} of {}: `output_read` with `offset` {next} reads on]",
            commas(offset),
            commas(next),
            commas(total)
        ),
        None => format!("[bytes {} to {} of {}: the end]", commas(offset), commas(total), commas(total)),
    })
}

fn too_large(bytes: usize) -> ToolError {
    let (bytes, limit) = (format_with_commas(bytes), format_with_commas(MAX_RESULT_BYTES));
    ToolError::resource_limit(format!(
        "the tool's result has {bytes} bytes, and at most {limit} are accepted"
    ))
    .with_code(ToolErrorCode::ResultTooLarge)
}

/// Whether the single text of a result is its data as JSON.
fn is_text_of_data(output: &ToolOutput) -> bool {
    match (output.content.as_slice(), &output.structured) {
        ([block], Some(data)) => block.as_text().is_some_and(|text| {
            text.len() == json_bytes(data) && serde_json::to_string(data).is_ok_and(|json| json == text)
        }),
        _ => false,
    }
}

/// Records in the details which part was withheld, and its size.
fn withhold(details: &mut Map<String, Value>, part_name: &str, bytes: usize) {
    let withheld = details.entry("withheld").or_insert_with(|| json!({}));
    if let Value::Object(withheld) = withheld {
        withheld.insert(part_name.to_owned(), bytes.into());
    }
}

/// Stores the full text for `output_read`, with the labels of its run, which stay with the text after the run
/// and the process have ended. If storing fails, the rest of the text is lost, but the call still succeeds.
fn store_output(
    text: &str,
    grant: &Grant,
    host: &Host,
    caller: &Caller,
    pending_record: &PendingRecord,
) -> Option<String> {
    // Use a fresh id: a provider can reuse call ids, and a stored output must not replace another.
    let id = random_id("out");
    let owner = OutputOwner { agent_id: caller.agent_id.clone(), run_id: caller.run_id.clone() };
    let labels: Vec<FlowLabel> = host.labels.context(caller).labels.keys().cloned().collect();
    let grant = StoredGrant::to_json(&pending_record.row.tool, grant, &labels);
    match host.outputs.put(&id, &owner, &grant, text) {
        Ok(()) => Some(id),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot keep a whole output");
            None
        }
    }
}

/// Returns the details for the caller: the tool's own details, and the notes on its arguments.
fn details(tool_details: Value, notes: CallNotes) -> Map<String, Value> {
    let own_bytes = if tool_details.is_null() { 0 } else { json_bytes(&tool_details) };
    let is_withheld = own_bytes > MAX_DETAILS_BYTES;
    let mut details = match tool_details {
        _ if is_withheld => Map::new(),
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other_value => Map::from_iter([("tool".to_owned(), other_value)]),
    };
    // Keys that are reserved for the host. A tool's value under such a key would look like the host's.
    for key in ["repaired", "ignored", "output_id", "hooked", "tries", "rest", "withheld"] {
        details.remove(key);
    }
    if is_withheld {
        withhold(&mut details, "details", own_bytes);
    }
    if notes.hooked {
        details.insert("hooked".to_owned(), true.into());
    }
    if notes.tries > 1 {
        details.insert("tries".to_owned(), notes.tries.into());
    }
    for (key, notes) in [("repaired", notes.repaired), ("ignored", notes.ignored)] {
        if !notes.is_empty() {
            details.insert(key.to_owned(), shorten_notes(notes).into());
        }
    }
    details
}

/// Returns the first notes, each truncated to [`MAX_NOTE_BYTES`].
fn shorten_notes(notes: Vec<String>) -> Vec<String> {
    let omitted = notes.len().saturating_sub(MAX_NOTES);
    let mut short_notes: Vec<String> =
        notes.into_iter().take(MAX_NOTES).map(|note| shorten(&note, MAX_NOTE_BYTES)).collect();
    if omitted > 0 {
        short_notes.push(format!("… and {omitted} more"));
    }
    short_notes
}

fn shape_failure(
    error: ToolError,
    notes: CallNotes,
    usage: Option<ResourceUsage>,
    pending_record: &PendingRecord,
) -> Shaped {
    let error = bound_error(error);
    if error.kind() == ToolErrorKind::Internal {
        tracing::error!(
            tool = %pending_record.row.tool,
            call_id = %pending_record.row.call_id,
            detail = error.operator_detail().unwrap_or_default(),
            "a tool call failed on our side"
        );
    }
    Shaped {
        details: details(Value::Null, notes).into(),
        truncated: false,
        original_bytes: error.message().len() as u64,
        outcome: ToolOutcome::Error(error),
        usage,
    }
}

/// Truncates the texts of an error. Each of them, including the operator's detail, can contain text of a
/// guest or a program.
fn bound_error(error: ToolError) -> ToolError {
    let parts = [Some(error.message()), error.hint(), error.operator_detail()];
    let is_short = parts.into_iter().flatten().all(|text| text.len() <= MAX_ERROR_BYTES);
    if is_short && error.code().len() <= MAX_CODE_BYTES {
        return error;
    }
    let code = error.code()[..error.code().floor_char_boundary(MAX_CODE_BYTES)].to_owned();
    let shorten_text = |text: &str| shorten(text, MAX_ERROR_BYTES);
    let mut bounded = ToolError::new(error.kind(), shorten_text(error.message())).with_code(code);
    if let Some(hint) = error.hint() {
        bounded = bounded.with_hint(shorten_text(hint));
    }
    if let Some(detail) = error.operator_detail() {
        bounded = bounded.with_operator_detail(shorten_text(detail));
    }
    bounded
}

/// Returns the start of a text, with the length of the whole.
pub(super) fn shorten(text: &str, max_bytes: usize) -> String {
    if text.len() <= max_bytes {
        return text.to_owned();
    }
    let cut_at = text.floor_char_boundary(max_bytes);
    format!("{}… [{} bytes in all]", &text[..cut_at], format_with_commas(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_cannot_speak_as_the_host_in_its_details() {
        let tool_details = json!({"output_id": "call_of_another", "repaired": ["x"], "rest": "r", "withheld": 1, "lines": 3});
        let notes = CallNotes { repaired: vec!["limit".into()], ..CallNotes::default() };
        assert_eq!(Value::from(details(tool_details, notes)), json!({"lines": 3, "repaired": ["limit"]}));
    }

    #[test]
    fn long_details_are_withheld_and_long_notes_shortened() {
        for tool_details in [json!({"a": "x".repeat(100_000)}), json!("x".repeat(100_000))] {
            let bytes = json_bytes(&tool_details);
            assert_eq!(
                Value::from(details(tool_details, CallNotes::default())),
                json!({"withheld": {"details": bytes}})
            );
        }
        let notes = CallNotes { ignored: vec!["x".repeat(1000); 5000], ..CallNotes::default() };
        let details_json = Value::from(details(Value::Null, notes));
        assert!(json_bytes(&details_json) < 20_000);
        assert_eq!(details_json["ignored"][64], "… and 4936 more");
    }

    #[test]
    fn long_error_texts_are_bounded_and_keep_their_kind() {
        let error = bound_error(ToolError::not_found("x".repeat(10_000)).with_hint("h"));
        assert_eq!(error.kind(), ToolErrorKind::NotFound);
        assert!(error.message().len() < MAX_ERROR_BYTES + 40);
        assert_eq!(error.hint(), Some("h"));
        let error = bound_error(ToolError::denied("no").with_hint("x".repeat(10_000)));
        assert!(error.hint().is_some_and(|hint| hint.len() < MAX_ERROR_BYTES + 40));
        assert_eq!(error.message(), "no");
        let error = bound_error(ToolError::failed("no").with_code("ä".repeat(10_000)));
        assert_eq!((error.code().len(), error.message()), (MAX_CODE_BYTES, "no"));
        let error = bound_error(ToolError::internal("x".repeat(10_000)));
        assert_eq!(error.message(), ToolError::INTERNAL_MESSAGE);
        assert!(error.operator_detail().is_some_and(|detail| detail.len() < MAX_ERROR_BYTES + 40));
    }
}
