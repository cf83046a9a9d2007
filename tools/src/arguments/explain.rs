//! Messages about wrong arguments that a model can act on.
//!
//! Values and names are the model's own, but a front end may print them: they are cut, and characters that
//! move a cursor or change the writing direction are escaped.

use std::{collections::BTreeSet, fmt::Write as _, io};

use jsonschema::{
    ErrorIterator, JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use portcullis_types::ToolError;
use portcullis_types::escape_for_display;
use serde_json::Value;

use super::repair::RepairStep;

/// All faults of one call's arguments.
#[derive(Debug, Default)]
pub(super) struct ArgumentFaults(Vec<ArgumentFault>);

impl ArgumentFaults {
    /// Adds a float such as 5.0, which JSON Schema takes for an integer.
    pub(super) fn not_an_integer(&mut self, root: &Value, place: Vec<RepairStep>) {
        let value = place.iter().try_fold(root, |value, step| match step {
            RepairStep::Index(index) => value.get(index),
            RepairStep::Key(key) => value.get(key),
        });
        let text = format!("{} is not an integer", value.map(show).unwrap_or_default());
        self.0.push(ArgumentFault::about_value(place, &text));
    }

    /// Adds the validator's errors.
    pub(super) fn collect(&mut self, schema: &Value, errors: ErrorIterator<'_>) {
        let errors: Vec<_> = errors.take(MAX_COLLECTED).collect();
        let choices: BTreeSet<_> = errors.iter().filter(|error| is_choice(error)).map(place_of).collect();
        for error in &errors {
            // The list of allowed values already shows the type.
            if matches!(error.kind(), ValidationErrorKind::Type { .. }) && choices.contains(place_of(error)) {
                continue;
            }
            explain(schema, error, &mut self.0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether this example helps with a wrong value: words alone often do not help a model. An example
    /// without the wrong field does not help, and a missing field is named already.
    pub(super) fn want(&self, example: &Value) -> bool {
        let shows = |fault: &ArgumentFault| match fault.place.first() {
            Some(RepairStep::Key(name)) => example.get(name).is_some(),
            Some(RepairStep::Index(_)) | None => true,
        };
        self.0.iter().any(|fault| fault.kind == FaultKind::Wrong && shows(fault))
    }

    /// All faults as one error, sorted by place; `Ok` if there are none.
    pub(super) fn into_result(mut self) -> Result<(), ToolError> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.sort();
        self.0.dedup();
        let more = self.0.len().saturating_sub(MAX_SHOWN);
        let mut message = String::new();
        for fault in self.0.iter().take(MAX_SHOWN) {
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&fault.text);
        }
        if more > 0 {
            let _ = write!(message, "; and {more} more");
        }
        Err(ToolError::invalid_arguments(message))
    }
}

/// One fault. The order is that of the message: missing fields, unknown ones, wrong ones.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ArgumentFault {
    kind: FaultKind,
    place: Vec<RepairStep>,
    text: String,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FaultKind {
    Missing,
    Unknown,
    Wrong,
}

impl ArgumentFault {
    fn about_value(place: Vec<RepairStep>, problem: &str) -> Self {
        let text = if place.is_empty() {
            format!("arguments: {problem}")
        } else {
            format!("field {}: {problem}", quoted(&place))
        };
        Self { kind: FaultKind::Wrong, place, text }
    }

    fn missing(place: Vec<RepairStep>, name: &str) -> Self {
        let text = format!("missing required field '{}' in {}", show_name(name), container(&place));
        Self { kind: FaultKind::Missing, place, text }
    }

    fn unknown(place: Vec<RepairStep>, name: &str, known: &[&str]) -> Self {
        let mut text = format!("unknown field '{}' in {}", show_name(name), container(&place));
        match nearest(name, known) {
            Some(near) => {
                let _ = write!(text, "; did you mean '{}'?", show_name(near));
            }
            None if known.is_empty() => text.push_str(", which takes no fields"),
            None => {}
        }
        Self { kind: FaultKind::Unknown, place, text }
    }
}

fn explain(schema: &Value, error: &ValidationError<'_>, faults: &mut Vec<ArgumentFault>) {
    use ValidationErrorKind as Kind;
    let place = steps(error.instance_path().as_str());
    match error.kind() {
        Kind::Required { property } => {
            faults.push(ArgumentFault::missing(place, property.as_str().unwrap_or_default()));
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known = names_beside(schema, error.schema_path().as_str());
            for name in unexpected {
                faults.push(ArgumentFault::unknown(place.clone(), name, &known));
            }
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            match meant_branch(context, error.instance_path().as_str()) {
                Some(branch) => branch.iter().for_each(|error| explain(schema, error, faults)),
                None => faults.push(ArgumentFault::about_value(place, &no_branch(context, error.instance()))),
            }
        }
        kind => faults.push(ArgumentFault::about_value(place, &problem(kind, error.instance()))),
    }
}

fn is_choice(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. })
}

fn place_of<'e>(error: &'e ValidationError<'_>) -> &'e str {
    error.instance_path().as_str()
}

fn problem(kind: &ValidationErrorKind, instance: &Value) -> String {
    use ValidationErrorKind as Kind;
    let value = || show(instance);
    match kind {
        Kind::Type { kind } => format!("{} is not {}", value(), types(kind)),
        Kind::Enum { options } => format!("{} is not one of {}", value(), list(options)),
        Kind::Constant { expected_value } => format!("{} is not {}", value(), show(expected_value)),
        Kind::Minimum { limit } => format!("{} is less than the minimum {limit}", value()),
        Kind::Maximum { limit } => format!("{} is greater than the maximum {limit}", value()),
        Kind::ExclusiveMinimum { limit } => format!("{} is not greater than {limit}", value()),
        Kind::ExclusiveMaximum { limit } => format!("{} is not less than {limit}", value()),
        Kind::MultipleOf { multiple_of } => format!("{} is not a multiple of {multiple_of}", value()),
        Kind::MinLength { limit } => format!("{} is shorter than {}", value(), count(*limit, "character")),
        Kind::MaxLength { limit } => format!("{} is longer than {}", value(), count(*limit, "character")),
        Kind::Pattern { pattern } => {
            format!("{} does not match the pattern {}", value(), show_text(pattern, MAX_SHOWN_CHARS))
        }
        Kind::Format { format } => {
            format!("{} is not in the format {}", value(), show_text(format, MAX_SHOWN_CHARS))
        }
        Kind::MinItems { limit } => format!("has fewer than {}", count(*limit, "item")),
        Kind::MaxItems { limit } => format!("has more than {}", count(*limit, "item")),
        Kind::AdditionalItems { limit } => {
            format!("has more than {}", count(u64::try_from(*limit).unwrap_or(u64::MAX), "item"))
        }
        Kind::UnevaluatedItems { .. } => "has items that are not allowed".to_owned(),
        Kind::UniqueItems => "has an item twice".to_owned(),
        Kind::Contains => "lacks an item that it must contain".to_owned(),
        Kind::MinProperties { limit } => format!("has fewer than {}", count(*limit, "field")),
        Kind::MaxProperties { limit } => format!("has more than {}", count(*limit, "field")),
        Kind::PropertyNames { error } => {
            format!("has a field whose name {} is not allowed", show(error.instance()))
        }
        Kind::OneOfMultipleValid { .. } => format!("{} fits more than one of the allowed forms", value()),
        Kind::Not { .. } | Kind::FalseSchema => format!("{} is not allowed", value()),
        other => format!("{} does not satisfy `{}`", value(), other.keyword()),
    }
}

/// The one branch that was meant. An optional value has a second branch for null and a tagged one has many;
/// only the meant branch fails for more than the value's type or tag.
fn meant_branch<'c>(
    context: &'c [Vec<ValidationError<'static>>],
    at: &str,
) -> Option<&'c [ValidationError<'static>]> {
    let mut meant = context.iter().filter(|branch| !branch.iter().any(|error| is_other_kind(error, at)));
    match (meant.next(), meant.next()) {
        (Some(branch), None) => Some(branch),
        _ => None,
    }
}

/// Whether an error says that the value is of another type or tag than the branch.
fn is_other_kind(error: &ValidationError<'_>, at: &str) -> bool {
    use ValidationErrorKind as Kind;
    let place = error.instance_path().as_str();
    match error.kind() {
        Kind::Type { .. } | Kind::Enum { .. } => place == at,
        Kind::Constant { .. } => {
            place == at || place.strip_prefix(at).is_some_and(|rest| rest.matches('/').count() == 1)
        }
        _ => false,
    }
}

/// The message when no single branch was meant: the types and values that the branches accept.
fn no_branch(context: &[Vec<ValidationError<'static>>], instance: &Value) -> String {
    use ValidationErrorKind as Kind;
    let mut kinds: Vec<&'static str> = Vec::new();
    let mut values: Vec<String> = Vec::new();
    for branch in context {
        match branch.as_slice() {
            [error] => match error.kind() {
                Kind::Type { kind: TypeKind::Single(kind) } => kinds.push(named(*kind)),
                Kind::Enum { options } => values.push(list(options)),
                Kind::Constant { expected_value } => values.push(show(expected_value)),
                _ => return format!("{} fits none of the allowed forms", show(instance)),
            },
            _ => return format!("{} fits none of the allowed forms", show(instance)),
        }
    }
    kinds.sort_unstable();
    kinds.dedup();
    let one_of = (!values.is_empty()).then(|| format!("one of {}", values.join(", ")));
    let all: Vec<&str> = one_of.as_deref().into_iter().chain(kinds).collect();
    format!("{} is not {}", show(instance), all.join(" or "))
}

/// The names of the properties next to the keyword that a schema path ends in.
fn names_beside<'s>(schema: &'s Value, schema_path: &str) -> Vec<&'s str> {
    let parent = schema_path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let properties = schema.pointer(parent).and_then(|parent| parent.get("properties"));
    properties
        .and_then(Value::as_object)
        .map_or_else(Vec::new, |map| map.keys().map(String::as_str).collect())
}

fn nearest<'k>(name: &str, known: &[&'k str]) -> Option<&'k str> {
    // The comparison takes time in the product of the lengths, and the model chooses the name.
    if name.len() > MAX_SHOWN_CHARS {
        return None;
    }
    let closeness = |candidate: &str| {
        let part =
            candidate.len().min(name.len()) >= 3 && (name.contains(candidate) || candidate.contains(name));
        strsim::normalized_damerau_levenshtein(name, candidate).max(if part { 0.5 } else { 0.0 })
    };
    let best = known.iter().map(|candidate| (closeness(candidate), *candidate));
    best.filter(|(close, _)| *close >= 0.5).max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, candidate)| candidate)
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => named(*kind).to_owned(),
        TypeKind::Multiple(kinds) => {
            let names: Vec<&str> = kinds.iter().map(named).collect();
            names.join(" or ")
        }
    }
}

fn named(kind: JsonType) -> &'static str {
    match kind {
        JsonType::Array => "an array",
        JsonType::Boolean => "a boolean",
        JsonType::Integer => "an integer",
        JsonType::Null => "null",
        JsonType::Number => "a number",
        JsonType::Object => "an object",
        JsonType::String => "a string",
    }
}

/// The JSON type of a value, with its article.
pub(super) fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a string",
        Value::Array(_) => "an array",
        Value::Object(_) => "an object",
    }
}

fn count(number: u64, noun: &str) -> String {
    if number == 1 { format!("1 {noun}") } else { format!("{number} {noun}s") }
}

fn list(options: &Value) -> String {
    let Some(options) = options.as_array() else {
        return show(options);
    };
    let mut text = options.iter().take(MAX_LISTED).map(show).collect::<Vec<_>>().join(", ");
    if options.len() > MAX_LISTED {
        let _ = write!(text, " and {} more", options.len() - MAX_LISTED);
    }
    text
}

fn container(place: &[RepairStep]) -> String {
    if place.is_empty() { "arguments".to_owned() } else { quoted(place) }
}

fn quoted(place: &[RepairStep]) -> String {
    format!("'{}'", place_name(place))
}

/// A place as a model reads it: `filters/0/size`; `arguments` for the whole.
pub(super) fn place_name(place: &[RepairStep]) -> String {
    if place.is_empty() {
        return "arguments".to_owned();
    }
    let names: Vec<String> = place
        .iter()
        .map(|step| match step {
            RepairStep::Index(index) => index.to_string(),
            RepairStep::Key(key) => show_name(key),
        })
        .collect();
    names.join("/")
}

/// The steps of a JSON pointer. A member whose name is a number becomes an index, which affects only the
/// order of messages.
fn steps(pointer: &str) -> Vec<RepairStep> {
    let parts = pointer.split('/').skip(1);
    parts
        .map(|part| match part.parse() {
            Ok(index) => RepairStep::Index(index),
            Err(_) => RepairStep::Key(part.replace("~1", "/").replace("~0", "~")),
        })
        .collect()
}

/// A value as JSON, cut to [`MAX_SHOWN_CHARS`].
fn show(value: &Value) -> String {
    let mut head = HeadWriter(Vec::new());
    // A full head fails the write on purpose: the rest is not needed.
    let _ = serde_json::to_writer(&mut head, value);
    show_text(&String::from_utf8_lossy(&head.0), MAX_SHOWN_CHARS)
}

/// A name, cut and escaped.
pub(super) fn show_name(name: &str) -> String {
    show_text(name, MAX_SHOWN_CHARS)
}

/// A text cut to so many characters, with control and direction characters escaped.
pub(super) fn show_text(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((end, _)) => format!("{}…", escape_for_display(&text[..end])),
        None => escape_for_display(text).to_string(),
    }
}

/// Keeps the beginning of what is written to it, then fails.
struct HeadWriter(Vec<u8>);

impl io::Write for HeadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let room = MAX_SHOWN_CHARS * 4 + 4 - self.0.len();
        if room == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let taken = bytes.len().min(room);
        self.0.extend_from_slice(&bytes[..taken]);
        Ok(taken)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The longest part of a value or name that is shown.
const MAX_SHOWN_CHARS: usize = 80;

/// The most allowed values that are listed.
const MAX_LISTED: usize = 20;

/// The most faults that a message has.
const MAX_SHOWN: usize = 10;

/// The most errors that are collected: a list of 10^5 wrong items gives as many.
const MAX_COLLECTED: usize = 1_000;
