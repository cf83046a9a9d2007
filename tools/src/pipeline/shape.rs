//! Step 6: makes the result fit to be shown: bounded in every part, without host paths or secrets.

use portcullis_policy::{FlowLabel, Grant, ToolOrigin};
use portcullis_types::{MAX_FINAL_FRAME_BYTES, ToolError, ToolErrorKind, ToolOutput, json_bytes};
use serde_json::{Map, Value, json};

use super::{
    Host, PendingRecord,
    backend::ResourceUsage,
    bound::{append, cut, full_text, is_over, truncation_mark, with_commas},
    check::CallNotes,
    run::RawOutcome,
};
use crate::{
    call::{Caller, random_id},
    output_store::OutputOwner,
    registered::RegisteredTool,
};

/// The most text of an error that a model gets, and of its hint; results have their own limit.
const MAX_ERROR_BYTES: usize = 4096;

/// The longest code of an error.
const MAX_CODE_BYTES: usize = 64;

/// The longest details of a tool, as JSON: 64 KiB. They are for people and logs; longer ones are withheld
/// whole.
pub(super) const MAX_DETAILS_BYTES: usize = 64 << 10;

/// The most notes on arguments, and the length of each: a model may have made up thousands of fields.
const MAX_NOTES: usize = 64;
const MAX_NOTE_BYTES: usize = 256;

/// The largest result before it is shaped: the limit of a guest's frame. A command's output has its own
/// limit, the policy's `shell.output`.
const MAX_RESULT_BYTES: usize = MAX_FINAL_FRAME_BYTES;

/// A result as the caller sees it.
#[derive(Debug)]
pub(crate) struct Shaped {
    pub(super) outcome: Result<ToolOutput, ToolError>,
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
    pending: &PendingRecord,
) -> Shaped {
    let RawOutcome { result, trailer, usage, grant, checked, has_grown, has_changed } = match raw {
        Ok(raw) => raw,
        Err(error) => return failed(error, CallNotes::default(), None, pending),
    };
    let (tool, notes) = (&checked.tool, checked.notes);
    let mut output = match result {
        Ok(output) => output,
        Err(error) => return failed(error, notes, usage, pending),
    };
    let tool_details = std::mem::take(&mut output.details);
    let size = Size::of(&output, &tool_details, tool);
    if size.all() > MAX_RESULT_BYTES && !tool.backend().bounds_results() {
        return failed(too_large(size.all()), notes, usage, pending);
    }
    // The order matters from here on: the trailer is made from the whole result, the whole text is stored, then parts are
    // left out of the result, and last the mark and the trailer are put behind what remains.
    let part = Part::of(&tool_details, tool);
    let mut rest = page_note(&tool_details, tool);
    let mut details = details(tool_details, notes);
    let excess = Excess::of(&output, &size, tool, &grant, has_grown);
    let trailer = part.as_ref().map(Part::trailer).or(trailer);
    if excess.any() {
        // Before anything is left out.
        let full_text = full_text(&output, excess.data_apart, trailer.as_deref());
        if let Some(id) = store_output(&full_text, &grant, host, caller, pending) {
            rest = rest_of_stored(part.as_ref(), rest, &id);
            details.insert("output_id".to_owned(), id.into());
        }
    }
    // The trailer after the text as shown, which may be cut.
    let shown_trailer = match &part {
        Some(part) if excess.content => {
            // After a hook's change, the shown bytes need not be the file's.
            let shown = if has_changed { None } else { shown_bytes(&output, excess.limit) };
            part.trailer_of_cut(size.content, shown)
        }
        _ => trailer,
    };
    let missing = part.as_ref().map_or(0, Part::missing);
    let original = size.content.saturating_add(missing);
    excess.leave_out(&mut output, &mut details, &size, original);
    if part.is_some() && !excess.content {
        append(&mut output.content, &truncation_mark(original));
    }
    if let Some(trailer) = &shown_trailer {
        append(&mut output.content, trailer);
    }
    details.extend(rest.map(|rest| ("rest".to_owned(), rest.into())));
    Shaped {
        outcome: Ok(output),
        details: details.into(),
        truncated: excess.any() || part.is_some(),
        original_bytes: size.all().saturating_add(missing) as u64,
        usage,
    }
}

/// Which parts of a result are over the call's limit.
struct Excess {
    /// The limit, in bytes.
    limit: usize,
    content: bool,
    data: bool,
    /// Whether the data is over the limit and the text does not contain it.
    data_apart: bool,
}

impl Excess {
    fn of(output: &ToolOutput, size: &Size, tool: &RegisteredTool, grant: &Grant, has_grown: bool) -> Self {
        let limit = usize::try_from(grant.limits.max_output.0).unwrap_or(usize::MAX);
        let data = size.data > limit;
        Self {
            limit,
            // A tool that pages its result keeps to the limit, unless a hook has made the result longer.
            content: is_over(&output.content, size.content, limit) && (!tool.pages_itself() || has_grown),
            data,
            // If the text is the data's JSON, the stored text has the data already.
            data_apart: data && !is_text_of_data(output),
        }
    }

    fn any(&self) -> bool {
        self.content || self.data
    }

    /// Leaves out of a result what is over the limit. `original` is the size of its content in bytes.
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
        // After the cut, which would take this line away.
        if self.data_apart {
            let line = format!("[structured result withheld — its size: {} bytes]", with_commas(size.data));
            append(&mut output.content, &line);
        }
    }
}

/// The size of a result, in bytes.
struct Size {
    content: usize,
    data: usize,
    /// The details of a tool of a foreign module, which are its own text like the rest. The host wrote those
    /// of a shipped tool, which count 0.
    details: usize,
}

impl Size {
    fn of(output: &ToolOutput, details: &Value, tool: &RegisteredTool) -> Self {
        let is_foreign = matches!(tool.facts().origin, ToolOrigin::ForeignModule | ToolOrigin::Native);
        Self {
            content: output.content_bytes(),
            data: output.structured_bytes(),
            details: if is_foreign && !details.is_null() { json_bytes(details) } else { 0 },
        }
    }

    fn all(&self) -> usize {
        self.content.saturating_add(self.data).saturating_add(self.details)
    }
}

/// A result of a shipped tool that is only a part, such as of a file longer than one call returns. Other
/// tools' details are not trusted for this: they would make the host state a wrong length.
struct Part {
    next: u64,
    total: u64,
}

impl Part {
    fn of(details: &Value, tool: &RegisteredTool) -> Option<Self> {
        if tool.facts().origin != ToolOrigin::ShippedModule {
            return None;
        }
        let number = |key: &str| details.get(key).and_then(Value::as_u64);
        let (next, total) = (number("next_byte_offset")?, number("total_bytes")?);
        (next < total).then_some(Self { next, total })
    }

    /// The number of bytes that are not in the result.
    fn missing(&self) -> usize {
        usize::try_from(self.total - self.next).unwrap_or(usize::MAX)
    }

    /// Tells the model how to read on after the part.
    fn trailer(&self) -> String {
        let total = usize::try_from(self.total).unwrap_or(usize::MAX);
        format!(
            "[this is not the end: the file has {} bytes; read on with `byte_offset` {}]",
            with_commas(total),
            self.next
        )
    }

    /// Tells the model how to read on after a part of `bytes` that was cut after `shown` of them. None if the
    /// file offsets of the shown bytes are unknown: [`Part::rest`] then leads to all of it.
    fn trailer_of_cut(&self, bytes: usize, shown: Option<usize>) -> Option<String> {
        let begin = self.next.checked_sub(bytes as u64)?;
        let on = begin + shown? as u64;
        let commas = |number| with_commas(usize::try_from(number).unwrap_or(usize::MAX));
        Some(format!(
            "[this is not the end: of the file's {} bytes these are {} to {}; read on with `byte_offset` {on}]",
            commas(self.total),
            commas(begin),
            commas(on),
        ))
    }

    /// Tells the model how to read the stored part of a result that was cut.
    fn rest(&self, id: &str) -> String {
        let next = usize::try_from(self.next).unwrap_or(usize::MAX);
        format!("[up to byte {} of the file: `output_read` with `call_id` \"{id}\"]", with_commas(next))
    }
}

/// Tells the model how to read the rest of a part or page that is stored under `id`; none for other results.
fn rest_of_stored(part: Option<&Part>, page: Option<String>, id: &str) -> Option<String> {
    match (part, page) {
        (Some(part), _) => Some(part.rest(id)),
        (None, Some(page)) => {
            Some(format!("[the whole page: `output_read` with `call_id` \"{id}\"]\n{page}"))
        }
        (None, None) => None,
    }
}

/// The number of bytes shown of a cut result that is a single text.
fn shown_bytes(output: &ToolOutput, limit: usize) -> Option<usize> {
    match output.content.as_slice() {
        [only] => only.as_text().map(|text| text.floor_char_boundary(limit)),
        _ => None,
    }
}

/// Tells the model which page of a stored output this is; none for other tools' results.
fn page_note(details: &Value, tool: &RegisteredTool) -> Option<String> {
    if !tool.pages_itself() {
        return None;
    }
    let number = |key: &str| details.get(key).and_then(Value::as_u64);
    let (offset, total) = (number("offset")?, number("total_bytes")?);
    let commas = |number| with_commas(usize::try_from(number).unwrap_or(usize::MAX));
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
    let (bytes, limit) = (with_commas(bytes), with_commas(MAX_RESULT_BYTES));
    ToolError::resource_limit(format!("the tool's result has {bytes} bytes, and at most {limit} are taken"))
        .with_code("result_too_large")
}

/// Whether the single text of a result is the JSON of its data.
fn is_text_of_data(output: &ToolOutput) -> bool {
    match (output.content.as_slice(), &output.structured) {
        ([only], Some(data)) => only.as_text().is_some_and(|text| {
            text.len() == json_bytes(data) && serde_json::to_string(data).is_ok_and(|json| json == text)
        }),
        _ => false,
    }
}

/// Notes in the details what was withheld, and its size.
fn withhold(details: &mut Map<String, Value>, what: &str, bytes: usize) {
    let withheld = details.entry("withheld").or_insert_with(|| json!({}));
    if let Value::Object(withheld) = withheld {
        withheld.insert(what.to_owned(), bytes.into());
    }
}

/// Stores the whole text for `output_read`, with the labels of its run: they hold for the text when the run is over, and
/// after the process. If the store fails, the rest of the text is lost, not the call.
fn store_output(
    text: &str,
    grant: &Grant,
    host: &Host,
    caller: &Caller,
    pending: &PendingRecord,
) -> Option<String> {
    // Use a fresh id: a provider may reuse call ids, and a stored output must not take another's place.
    let id = random_id("out");
    let owner = OutputOwner { agent_id: caller.agent_id.clone(), run_id: caller.run_id.clone() };
    let labels: Vec<FlowLabel> = host.labels.facts(caller).labels.keys().cloned().collect();
    let grant = json!({ "tool": &*pending.call.tool, "grant": grant, "labels": labels });
    match host.outputs.put(&id, &owner, &grant, text) {
        Ok(()) => Some(id),
        Err(error) => {
            tracing::warn!(error = &error as &dyn std::error::Error, "cannot keep a whole output");
            None
        }
    }
}

/// The details for the caller: the tool's own, and the notes on its arguments.
fn details(own: Value, notes: CallNotes) -> Map<String, Value> {
    let own_bytes = if own.is_null() { 0 } else { json_bytes(&own) };
    let is_withheld = own_bytes > MAX_DETAILS_BYTES;
    let mut details = match own {
        _ if is_withheld => Map::new(),
        Value::Object(map) => map,
        Value::Null => Map::new(),
        other => Map::from_iter([("tool".to_owned(), other)]),
    };
    // Reserved keys of the host: a tool's own values under these names would pass for the host's.
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
            details.insert(key.to_owned(), listed(notes).into());
        }
    }
    details
}

/// The first notes, each cut to [`MAX_NOTE_BYTES`].
fn listed(notes: Vec<String>) -> Vec<String> {
    let more = notes.len().saturating_sub(MAX_NOTES);
    let mut listed: Vec<String> =
        notes.into_iter().take(MAX_NOTES).map(|note| shortened(&note, MAX_NOTE_BYTES)).collect();
    if more > 0 {
        listed.push(format!("… and {more} more"));
    }
    listed
}

fn failed(
    error: ToolError,
    notes: CallNotes,
    usage: Option<ResourceUsage>,
    pending: &PendingRecord,
) -> Shaped {
    let error = bounded(error);
    if error.kind() == ToolErrorKind::Internal {
        tracing::error!(
            tool = %pending.call.tool,
            call_id = %pending.call.call_id,
            detail = error.operator_detail().unwrap_or_default(),
            "a tool call failed on our side"
        );
    }
    Shaped {
        details: details(Value::Null, notes).into(),
        truncated: false,
        original_bytes: error.message().len() as u64,
        outcome: Err(error),
        usage,
    }
}

/// Bounds the texts of an error, which may be a guest's or a program's own words; so may the operator's
/// detail.
fn bounded(error: ToolError) -> ToolError {
    let parts = [Some(error.message()), error.hint(), error.operator_detail()];
    let is_short = parts.into_iter().flatten().all(|text| text.len() <= MAX_ERROR_BYTES);
    if is_short && error.code().len() <= MAX_CODE_BYTES {
        return error;
    }
    let code = error.code()[..error.code().floor_char_boundary(MAX_CODE_BYTES)].to_owned();
    let cut = |text: &str| shortened(text, MAX_ERROR_BYTES);
    let mut shorter = ToolError::new(error.kind(), cut(error.message())).with_code(code);
    if let Some(hint) = error.hint() {
        shorter = shorter.with_hint(cut(hint));
    }
    if let Some(detail) = error.operator_detail() {
        shorter = shorter.with_operator_detail(cut(detail));
    }
    shorter
}

/// The beginning of a text, with its full length.
pub(super) fn shortened(text: &str, most: usize) -> String {
    if text.len() <= most {
        return text.to_owned();
    }
    let end = text.floor_char_boundary(most);
    format!("{}… [{} bytes in all]", &text[..end], with_commas(text.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tool_cannot_speak_as_the_host_in_its_details() {
        let own = json!({"output_id": "call_of_another", "repaired": ["x"], "rest": "r", "withheld": 1, "lines": 3});
        let notes = CallNotes { repaired: vec!["limit".into()], ..CallNotes::default() };
        assert_eq!(Value::from(details(own, notes)), json!({"lines": 3, "repaired": ["limit"]}));
    }

    #[test]
    fn long_details_are_withheld_and_long_notes_shortened() {
        for own in [json!({"a": "x".repeat(100_000)}), json!("x".repeat(100_000))] {
            let bytes = json_bytes(&own);
            assert_eq!(
                Value::from(details(own, CallNotes::default())),
                json!({"withheld": {"details": bytes}})
            );
        }
        let notes = CallNotes { ignored: vec!["x".repeat(1000); 5000], ..CallNotes::default() };
        let shown = Value::from(details(Value::Null, notes));
        assert!(json_bytes(&shown) < 20_000);
        assert_eq!(shown["ignored"][64], "… and 4936 more");
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
        let error = bounded(ToolError::failed("no").with_code("ä".repeat(10_000)));
        assert_eq!((error.code().len(), error.message()), (MAX_CODE_BYTES, "no"));
        let error = bounded(ToolError::internal("x".repeat(10_000)));
        assert_eq!(error.message(), ToolError::INTERNAL_MESSAGE);
        assert!(error.operator_detail().is_some_and(|detail| detail.len() < MAX_ERROR_BYTES + 40));
    }
}
