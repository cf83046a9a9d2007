//! The tools for goals, memories and plans, which an agent keeps between its cycles.

use jiff::Timestamp;
use portcullis_runs::now;
use portcullis_store::{Change, Json, NewNote, Note, NoteKind, PageRequest};
use portcullis_types::ToolError;
use serde_json::{Value, json};

use super::store_error;
use crate::{cycle::CycleSpace, resource::format_timestamp};

/// The maximum number of plans that are read.
const MAX_PLANS: u32 = 200;

/// How many characters of the call's key the id of a note has.
const KEY_CHARS: usize = 16;

/// A minute in milliseconds.
const MINUTE: i64 = 60_000;

/// Returns the key of the notes in arguments and results.
fn key(kind: NoteKind) -> &'static str {
    match kind {
        NoteKind::Goal => "goals",
        NoteKind::Memory => "memories",
        NoteKind::Plan => "plans",
    }
}

/// Sets notes. `call` is the same for all attempts of a call, so a repeated call sets the same notes.
pub(super) async fn set(
    cycle: &CycleSpace,
    kind: NoteKind,
    call: &str,
    args: &Value,
) -> Result<Value, ToolError> {
    let now = now();
    let items = args[key(kind)].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut notes = Vec::new();
    for (index, item) in items.iter().enumerate() {
        // The whole key would exceed the length of an id that a model may name.
        let call: String = call.chars().take(KEY_CHARS).collect();
        let id =
            item["id"].as_str().map_or_else(|| format!("{}_{call}_{index}", kind.as_str()), str::to_owned);
        let location = format!("{}[{index}]", key(kind));
        // The schema bounds the minutes, so the product does not overflow.
        let every = item["everyMinutes"].as_i64().map(|minutes| minutes * MINUTE);
        let due = match item["at"].as_str() {
            Some(text) => Some(instant(text, &location)?),
            None => every.map(|every| now + every),
        };
        let body = json!({ "text": item["text"] });
        notes.push(NewNote { id, body: Json::of(&body).map_err(store_error)?, due, every });
    }
    let set: Vec<_> = notes
        .iter()
        .map(|note| match note.due {
            Some(due) => json!({ "id": note.id, "due": format_timestamp(due) }),
            None => json!({ "id": note.id }),
        })
        .collect();
    let agent = cycle.agent.id.clone();
    cycle.state.write(vec![Change::SetNotes { agent, kind, notes, now }]).await.map_err(store_error)?;
    Ok(json!({ key(kind): set }))
}

/// Parses the time of a plan into milliseconds since the Unix epoch.
fn instant(text: &str, location: &str) -> Result<i64, ToolError> {
    let parsed: Result<Timestamp, _> = text.parse();
    parsed.map(Timestamp::as_millisecond).map_err(|error| {
        ToolError::invalid_arguments(format!(
            "{location}.at is not a time in RFC 3339 with an offset, such as 2026-05-01T09:00:00+02:00: {error}"
        ))
    })
}

pub(super) async fn delete(cycle: &CycleSpace, kind: NoteKind, args: &Value) -> Result<Value, ToolError> {
    let ids = args["ids"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids: Vec<String> = ids.iter().filter_map(Value::as_str).map(str::to_owned).collect();
    let agent = cycle.agent.id.clone();
    let applied = cycle.state.write(vec![Change::RemoveNotes { agent, kind, ids }]).await;
    let count = applied.map_err(store_error)?.into_iter().find_map(|applied| match applied {
        portcullis_store::ChangeResult::NotesRemoved { count } => Some(count),
        _ => None,
    });
    Ok(json!({ "deleted": count.unwrap_or_default() }))
}

pub(super) async fn plans(cycle: &CycleSpace) -> Result<Value, ToolError> {
    let notes = cycle.state.store.notes(&cycle.agent.id, NoteKind::Plan, PageRequest::first(MAX_PLANS)).await;
    let plans: Vec<_> = notes.map_err(store_error)?.items.iter().map(note_of).collect();
    Ok(json!({ "plans": plans }))
}

/// Converts a note to the form that an agent reads.
fn note_of(note: &Note) -> Value {
    let text: Value = serde_json::from_str(note.body.as_str()).unwrap_or_default();
    let mut value = json!({ "id": note.id, "text": text["text"] });
    if let Some(due) = note.due {
        value["due"] = format_timestamp(due).into();
    }
    if let Some(every) = note.every {
        value["everyMinutes"] = (every / MINUTE).into();
    }
    value
}
