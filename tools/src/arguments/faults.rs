//! Messages about wrong arguments that a model can act on.
//!
//! Values and names come from the model, and a front end may print them. They are therefore truncated, and
//! characters that move the cursor or change the writing direction are escaped.

use std::{collections::BTreeSet, fmt::Write as _, io};

use jsonschema::{
    ErrorIterator, JsonType, ValidationError,
    error::{TypeKind, ValidationErrorKind},
};
use portcullis_types::{ToolError, display::near::nearest_name, escape_for_display};
use serde_json::Value;

use super::repair::RepairStep;

/// All faults of one call's arguments.
#[derive(Debug, Default)]
pub(super) struct ArgumentFaults(Vec<ArgumentFault>);

impl ArgumentFaults {
    /// Adds the fault of a float such as 5.0 where an integer is expected. JSON Schema itself accepts the
    /// float.
    pub(super) fn add_not_an_integer(&mut self, root: &Value, location: Vec<RepairStep>) {
        let value = location.iter().try_fold(root, |value, step| match step {
            RepairStep::Index(index) => value.get(index),
            RepairStep::Key(key) => value.get(key),
        });
        let text = format!("{} is not an integer", value.map(show).unwrap_or_default());
        self.0.push(ArgumentFault::about_value(location, &text));
    }

    /// Adds the validator's errors.
    pub(super) fn collect(&mut self, schema: &Value, errors: ErrorIterator<'_>) {
        let errors: Vec<_> = errors.take(MAX_COLLECTED).collect();
        let choices: BTreeSet<_> = errors.iter().filter(|error| is_choice(error)).map(location_of).collect();
        for error in &errors {
            // The list of allowed values already shows the type, so omit the error about the type.
            if matches!(error.kind(), ValidationErrorKind::Type { .. })
                && choices.contains(location_of(error))
            {
                continue;
            }
            explain(schema, error, &mut self.0);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether to show this example: a value is wrong, and the example contains its top-level field. A
    /// missing field needs no example, because the message names the field.
    pub(super) fn needs_example(&self, example: &Value) -> bool {
        let needs_example = |fault: &ArgumentFault| match fault.location.first() {
            Some(RepairStep::Key(name)) => example.get(name).is_some(),
            Some(RepairStep::Index(_)) | None => true,
        };
        self.0.iter().any(|fault| fault.kind == FaultKind::Wrong && needs_example(fault))
    }

    /// All faults as one error, sorted by kind and then by location; `Ok` if there are none.
    pub(super) fn into_result(mut self) -> Result<(), ToolError> {
        if self.0.is_empty() {
            return Ok(());
        }
        self.0.sort();
        self.0.dedup();
        let unlisted = self.0.len().saturating_sub(MAX_SHOWN);
        let mut message = String::new();
        for fault in self.0.iter().take(MAX_SHOWN) {
            if !message.is_empty() {
                message.push_str("; ");
            }
            message.push_str(&fault.text);
        }
        if unlisted > 0 {
            let _ = write!(message, "; and {unlisted} more");
        }
        Err(ToolError::invalid_arguments(message))
    }
}

/// One fault. The derived order (field by field) gives the order of the message: missing fields, unknown
/// fields, wrong values.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct ArgumentFault {
    kind: FaultKind,
    location: Vec<RepairStep>,
    text: String,
}

#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
enum FaultKind {
    Missing,
    Unknown,
    Wrong,
}

impl ArgumentFault {
    fn about_value(location: Vec<RepairStep>, problem: &str) -> Self {
        let text = if location.is_empty() {
            format!("arguments: {problem}")
        } else {
            format!("field {}: {problem}", quoted(&location))
        };
        Self { kind: FaultKind::Wrong, location, text }
    }

    fn missing(location: Vec<RepairStep>, name: &str) -> Self {
        let text = format!("missing required field '{}' in {}", show_name(name), container(&location));
        Self { kind: FaultKind::Missing, location, text }
    }

    fn unknown(location: Vec<RepairStep>, name: &str, known_names: &[&str]) -> Self {
        let mut text = format!("unknown field '{}' in {}", show_name(name), container(&location));
        match meant_name(name, known_names) {
            Some(near_name) => {
                let _ = write!(text, "; did you mean '{}'?", show_name(near_name));
            }
            None if known_names.is_empty() => text.push_str(", which takes no fields"),
            None => {}
        }
        Self { kind: FaultKind::Unknown, location, text }
    }
}

fn explain(schema: &Value, error: &ValidationError<'_>, faults: &mut Vec<ArgumentFault>) {
    use ValidationErrorKind as Kind;
    let location = steps(error.instance_path().as_str());
    match error.kind() {
        Kind::Required { property } => {
            faults.push(ArgumentFault::missing(location, property.as_str().unwrap_or_default()));
        }
        Kind::AdditionalProperties { unexpected } | Kind::UnevaluatedProperties { unexpected } => {
            let known_names = sibling_names(schema, error.schema_path().as_str());
            for name in unexpected {
                faults.push(ArgumentFault::unknown(location.clone(), name, &known_names));
            }
        }
        Kind::AnyOf { context } | Kind::OneOfNotValid { context } => {
            match likeliest_branch(context, error.instance_path().as_str()) {
                Some(branch) => branch.iter().for_each(|error| explain(schema, error, faults)),
                None => {
                    faults.push(ArgumentFault::about_value(
                        location,
                        &no_branch_message(context, error.instance()),
                    ));
                }
            }
        }
        kind => faults.push(ArgumentFault::about_value(location, &problem(kind, error.instance()))),
    }
}

fn is_choice(error: &ValidationError<'_>) -> bool {
    matches!(error.kind(), ValidationErrorKind::Enum { .. } | ValidationErrorKind::Constant { .. })
}

fn location_of<'e>(error: &'e ValidationError<'_>) -> &'e str {
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
        other_kind => format!("{} does not satisfy `{}`", value(), other_kind.keyword()),
    }
}

/// Finds the branch that the model meant, if exactly one is possible. An optional value has a second branch
/// for null, and a tagged value has one branch per tag. Every other branch has an error about the value's
/// type or tag.
fn likeliest_branch<'c>(
    context: &'c [Vec<ValidationError<'static>>],
    value_location: &str,
) -> Option<&'c [ValidationError<'static>]> {
    let mut candidates =
        context.iter().filter(|branch| !branch.iter().any(|error| is_other_kind(error, value_location)));
    match (candidates.next(), candidates.next()) {
        (Some(branch), None) => Some(branch),
        _ => None,
    }
}

/// Whether an error says that the value's type or tag does not match the branch.
fn is_other_kind(error: &ValidationError<'_>, value_location: &str) -> bool {
    use ValidationErrorKind as Kind;
    let location = error.instance_path().as_str();
    match error.kind() {
        Kind::Type { .. } | Kind::Enum { .. } => location == value_location,
        // A constant in a direct member of the value is the tag of a variant.
        Kind::Constant { .. } => {
            location == value_location
                || location.strip_prefix(value_location).is_some_and(|rest| rest.matches('/').count() == 1)
        }
        _ => false,
    }
}

/// Formats the message for an unclear branch: the types and values that the branches accept.
fn no_branch_message(context: &[Vec<ValidationError<'static>>], instance: &Value) -> String {
    use ValidationErrorKind as Kind;
    let mut kinds: Vec<&'static str> = Vec::new();
    let mut values: Vec<String> = Vec::new();
    for branch in context {
        match branch.as_slice() {
            [error] => match error.kind() {
                Kind::Type { kind: TypeKind::Single(kind) } => kinds.push(type_name(*kind)),
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
    let alternatives: Vec<&str> = one_of.as_deref().into_iter().chain(kinds).collect();
    format!("{} is not {}", show(instance), alternatives.join(" or "))
}

/// Returns the names of the properties beside the keyword at the end of a schema path.
fn sibling_names<'s>(schema: &'s Value, schema_path: &str) -> Vec<&'s str> {
    let parent = schema_path.rsplit_once('/').map_or("", |(parent, _)| parent);
    let properties = schema.pointer(parent).and_then(|parent| parent.get("properties"));
    properties
        .and_then(Value::as_object)
        .map_or_else(Vec::new, |map| map.keys().map(String::as_str).collect())
}

/// Guesses the known name that a model meant: the nearest one, or else one that contains the unknown name or
/// is contained in it, such as `path` in `file_path`.
fn meant_name<'k>(name: &str, known_names: &[&'k str]) -> Option<&'k str> {
    // A name this long is not a typo.
    if name.len() > MAX_SHOWN_CHARS {
        return None;
    }
    let has_part = |whole: &str, part: &str| part.len() >= 3 && whole.contains(part);
    let is_part = |known: &&str| has_part(name, known) || has_part(known, name);
    let known_names = known_names.iter().copied();
    nearest_name(name, known_names.clone()).or_else(|| known_names.clone().find(is_part))
}

fn types(kind: &TypeKind) -> String {
    match kind {
        TypeKind::Single(kind) => type_name(*kind).to_owned(),
        TypeKind::Multiple(kinds) => {
            let names: Vec<&str> = kinds.iter().map(type_name).collect();
            names.join(" or ")
        }
    }
}

fn type_name(kind: JsonType) -> &'static str {
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

fn container(location: &[RepairStep]) -> String {
    if location.is_empty() { "arguments".to_owned() } else { quoted(location) }
}

fn quoted(location: &[RepairStep]) -> String {
    format!("'{}'", location_name(location))
}

/// Formats a location for the model, such as `filters/0/size`. The root is `arguments`.
pub(super) fn location_name(location: &[RepairStep]) -> String {
    if location.is_empty() {
        return "arguments".to_owned();
    }
    let names: Vec<String> = location
        .iter()
        .map(|step| match step {
            RepairStep::Index(index) => index.to_string(),
            RepairStep::Key(key) => show_name(key),
        })
        .collect();
    names.join("/")
}

/// Splits a JSON pointer into steps. A member whose name is a number becomes an index. This affects only the
/// order of the messages.
fn steps(pointer: &str) -> Vec<RepairStep> {
    let parts = pointer.split('/').skip(1);
    parts
        .map(|part| match part.parse() {
            Ok(index) => RepairStep::Index(index),
            Err(_) => RepairStep::Key(part.replace("~1", "/").replace("~0", "~")),
        })
        .collect()
}

/// Formats a value as JSON, truncated to [`MAX_SHOWN_CHARS`].
fn show(value: &Value) -> String {
    let mut head = HeadWriter(Vec::new());
    // `HeadWriter` fails on purpose once it is full, because the rest of the value is not needed.
    let _ = serde_json::to_writer(&mut head, value);
    show_text(&String::from_utf8_lossy(&head.0), MAX_SHOWN_CHARS)
}

/// Truncates and escapes a name.
pub(super) fn show_name(name: &str) -> String {
    show_text(name, MAX_SHOWN_CHARS)
}

/// Truncates a text to `max_chars` characters, and escapes control and direction characters.
pub(super) fn show_text(text: &str, max_chars: usize) -> String {
    match text.char_indices().nth(max_chars) {
        Some((cut_at, _)) => format!("{}…", escape_for_display(&text[..cut_at])),
        None => escape_for_display(text).to_string(),
    }
}

/// A writer that keeps the first bytes, and fails at the next write.
struct HeadWriter(Vec<u8>);

impl io::Write for HeadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // A character has at most 4 bytes. Room for one more character lets [`show_text`] see that the text
        // was truncated.
        let free_bytes = MAX_SHOWN_CHARS * 4 + 4 - self.0.len();
        if free_bytes == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        let count = bytes.len().min(free_bytes);
        self.0.extend_from_slice(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The maximum length of the shown part of a value or name.
const MAX_SHOWN_CHARS: usize = 80;

/// The maximum number of allowed values that are listed.
const MAX_LISTED: usize = 20;

/// The maximum number of faults in a message.
const MAX_SHOWN: usize = 10;

/// The maximum number of errors to collect. A list of 10^5 wrong items would give 10^5 errors.
const MAX_COLLECTED: usize = 1_000;
