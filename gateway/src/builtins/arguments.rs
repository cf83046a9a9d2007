//! The declarations of the built-in tools: their descriptions and the schemas of their arguments.

use portcullis_store::NoteKind;
use serde_json::{Value, json};

use super::Action;

/// The maximum length of the text of a message, in characters: 32,768.
pub(crate) const MAX_TEXT_CHARS: usize = 32_768;

/// The maximum number of messages that one call returns.
pub(super) const MAX_MESSAGES: u32 = 100;

/// The default of `limit`, in messages.
pub(super) const DEFAULT_MESSAGES: u32 = 20;

/// The maximum number of goals, memories or plans in one call.
const MAX_NOTES: usize = 50;

/// The maximum length of the text of a goal, a memory or a plan, in characters.
const MAX_NOTE_TEXT: usize = 4096;

/// The minimum interval of a repeating plan, in minutes.
const MIN_EVERY: u32 = 1;

/// The maximum interval of a repeating plan, in minutes: a year.
const MAX_EVERY: u32 = 366 * 24 * 60;

/// Returns the description of a tool, and the schema of its arguments.
pub(super) fn declaration(action: Action) -> (&'static str, Value) {
    let limit = json!({
        "type": "integer", "minimum": 1, "maximum": MAX_MESSAGES, "default": DEFAULT_MESSAGES,
        "description": "How many messages.",
    });
    match action {
        Action::EnterSpace => (
            "Enters a space: later messages and calls of visible tools appear there. Returns the space, its members and its newest messages.",
            object(
                &json!({
                    "spaceId": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The space's id."},
                    "limit": limit,
                }),
                &["spaceId"],
            ),
        ),
        Action::LeaveSpace => ("Leaves the space that you are in.", object(&json!({}), &[])),
        Action::SendMessage => (
            "Sends a message to the space that you are in. Its members read it.",
            object(
                &json!({
                    "text": {"type": "string", "minLength": 1, "maxLength": MAX_TEXT_CHARS, "description": "The message."},
                    "replyTo": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The id of the message that this one answers."},
                }),
                &["text"],
            ),
        ),
        Action::ReadMessages => (
            "Reads messages of a space, the newest first.",
            object(
                &json!({
                    "spaceId": {"type": "string", "minLength": 1, "maxLength": 256, "description": "The space's id. Default: the space that you are in."},
                    "limit": limit,
                    "offset": {"type": "integer", "minimum": 0, "maximum": 100_000, "default": 0, "description": "How many of the newest messages to leave out."},
                }),
                &[],
            ),
        ),
        Action::Skip => (
            "Says that there is nothing to do in this cycle.",
            object(
                &json!({
                    "reason": {"type": "string", "maxLength": 1000, "description": "Why there is nothing to do."},
                }),
                &[],
            ),
        ),
        Action::SetNotes(NoteKind::Goal) => (
            "Adds or replaces goals. With the id of an existing goal, that goal is replaced; without an id, a goal is added.",
            notes("goals", &json!({})),
        ),
        Action::SetNotes(NoteKind::Memory) => (
            "Adds or replaces memories, which you read in every later cycle. With the id of an existing memory, that memory is replaced; without an id, a memory is added.",
            notes("memories", &json!({})),
        ),
        // Require an offset: the gateway does not know a person's time zone.
        Action::SetNotes(NoteKind::Plan) => (
            "Adds or replaces plans. When a plan is due, it comes to your inbox. With the id of an existing plan, that plan is replaced; without an id, a plan is added.",
            notes(
                "plans",
                &json!({
                    "at": {"type": "string", "maxLength": 64, "description": "When the plan is due, as RFC 3339 with an offset, for example 2026-05-01T09:00:00+02:00."},
                    "everyMinutes": {"type": "integer", "minimum": MIN_EVERY, "maximum": MAX_EVERY, "description": "After how many minutes the plan is due again. Without it, it is due once."},
                }),
            ),
        ),
        Action::DeleteNotes(NoteKind::Goal) => ("Deletes goals.", ids()),
        Action::DeleteNotes(NoteKind::Memory) => ("Deletes memories.", ids()),
        Action::DeleteNotes(NoteKind::Plan) => ("Deletes plans.", ids()),
        Action::GetPlans => ("Reads your plans.", object(&json!({}), &[])),
    }
}

fn notes(name: &str, further: &Value) -> Value {
    let mut properties = json!({
        "id": {"type": "string", "minLength": 1, "maxLength": 64, "description": "The id of an existing item, to replace it."},
        "text": {"type": "string", "minLength": 1, "maxLength": MAX_NOTE_TEXT, "description": "Its text."},
    });
    if let (Some(properties), Some(further)) = (properties.as_object_mut(), further.as_object()) {
        properties.extend(further.clone());
    }
    let item = object(&properties, &["text"]);
    object(&json!({ name: {"type": "array", "minItems": 1, "maxItems": MAX_NOTES, "items": item} }), &[name])
}

fn ids() -> Value {
    let id = json!({"type": "string", "minLength": 1, "maxLength": 64});
    object(&json!({"ids": {"type": "array", "minItems": 1, "maxItems": MAX_NOTES, "items": id}}), &["ids"])
}

fn object(properties: &Value, required: &[&str]) -> Value {
    json!({
        "type": "object",
        "properties": properties,
        "required": required,
        // Refuse a misspelt key, so that the model learns of its mistake.
        "additionalProperties": false,
    })
}
