//! A tool's compiled schema, and the check of one call's arguments against it.

use std::{
    borrow::Cow,
    collections::{BTreeMap, BTreeSet},
    fmt,
};

use jsonschema::{Draft, PatternOptions, Validator};
use portcullis_types::is_deceptive;
use portcullis_types::{ArgumentRole, JsonSchema, ToolArgs, ToolError};
use serde_json::{Map, Value};
use thiserror::Error;

use super::{
    bounds::{MAX_PATTERNS, MAX_SCHEMA_BYTES, ensure_bounded, ensure_readable},
    decode::{MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH, decode_strict},
    faults::{ArgumentFaults, kind_of, location_name, show_name},
    ranges::spell_out_formats,
    references::spell_out_references,
    repair::{RepairResult, RepairScope, has_whole_float, repair, reread},
    rewrite::{ValueEdit, rewrite},
    tree::{JsonTree, JsonTreeFormat, ParsedTree},
    view::{SchemaView, Types},
};

/// The schema of a tool's arguments, compiled once when the tool is registered.
///
/// The dialect is draft 2020-12. String formats are checked, unless the schema names its dialect (`"$schema":
/// "https://json-schema.org/draft/2020-12/schema"`), which makes formats mere annotations. References never
/// leave the document, because there is no retriever. The regex engine runs in linear time, and a pattern
/// that needs backtracking is refused at registration.
pub struct ArgumentSchema {
    /// The schema, with its references spelled out.
    schema: Value,
    validator: Validator<JsonTreeFormat>,
    known_keys: KnownKeys,
    /// The roles of the arguments, for examples.
    roles: Vec<ArgumentRole>,
}

impl ArgumentSchema {
    /// Compiles a schema.
    ///
    /// # Errors
    /// [`SchemaError`] if the schema does not describe an object, refers outside itself, costs too much, or
    /// has a pattern that the linear engine does not support.
    pub fn compile(schema: &JsonSchema) -> Result<Self, SchemaError> {
        let raw_schema = schema.as_value();
        ensure_readable(raw_schema)?;
        let schema = spell_out_references(raw_schema)?;
        ensure_bounded(&schema)?;
        if !schema.is_object() || SchemaView::new(&schema).types(&schema) != Types::OBJECT {
            return Err(SchemaError::NotAnObject);
        }
        // The validator gets the schema as written, because it resolves references itself.
        let mut with_ranges = raw_schema.clone();
        spell_out_formats(&mut with_ranges);
        let validator = jsonschema::options_for::<JsonTreeFormat>()
            .with_draft(Draft::Draft202012)
            .offline()
            .with_pattern_options(PatternOptions::regex().size_limit(MAX_PATTERN_BYTES))
            .should_validate_formats(!names_its_dialect(raw_schema))
            .build(&with_ranges)
            .map_err(|error| SchemaError::Malformed {
                pointer: error.instance_path().to_string(),
                problem: error.to_string(),
            })?;
        Ok(Self { known_keys: KnownKeys::from_schema(&schema), schema, validator, roles: Vec::new() })
    }

    /// Adds the roles of the arguments, so that examples fit them.
    #[must_use]
    pub fn with_roles(mut self, roles: &[ArgumentRole]) -> Self {
        self.roles = roles.to_vec();
        self
    }

    /// Returns an example for a model that sent a wrong value. `None` if the example does not fit the schema,
    /// is too long to help, or contains deceptive characters.
    fn example(&self) -> Option<Value> {
        let roles = self.roles.iter().map(|role| (role.argument.as_str(), role.role));
        let example = JsonSchema::new(self.schema.clone()).example(roles);
        let text = example.to_string();
        let is_of_use = text != "{}"
            && text.len() <= MAX_EXAMPLE_BYTES
            && !text.chars().any(is_deceptive)
            && self.validator.is_valid(&JsonTree::new(&example));
        is_of_use.then_some(example)
    }

    /// Decodes a call's arguments, repairs them where `repairs` allows it, and validates them. An empty text is read as
    /// `{}`.
    ///
    /// The checked text equals the caller's text byte for byte, unless a value was repaired or a key ignored. Then only
    /// these values, the order of the keys and the white space around them differ.
    ///
    /// # Errors
    /// `invalid_arguments`, with all faults in one message.
    pub fn check(&self, text: &str, repairs: Repairs) -> Result<CheckedArguments, ToolError> {
        if self.is_valid_unchanged(text) {
            let args = ToolArgs::from_checked(text);
            return Ok(CheckedArguments { args, repaired: Vec::new(), ignored: Vec::new() });
        }
        let mut changes = ArgumentEdits::default();
        let (text, mut value) = open(text, repairs, &mut changes)?;
        let Value::Object(members) = &mut value else {
            return Err(ToolError::invalid_arguments(format!(
                "the arguments must be a JSON object, not {}",
                kind_of(&value)
            )));
        };
        changes.ignore_unknown(members, &self.known_keys);

        let mut is_valid = self.validator.is_valid(&JsonTree::new(&value));
        if repairs == Repairs::Allowed && (!is_valid || has_whole_float(&value)) {
            let scope = if is_valid { RepairScope::WholeNumbers } else { RepairScope::Everything };
            // The repaired value is validated below like any other.
            changes.take(repair(&mut value, &self.schema, scope));
            is_valid = self.validator.is_valid(&JsonTree::new(&value));
        }
        let mut faults = ArgumentFaults::default();
        if !is_valid {
            let tree = JsonTree::new(&value);
            faults.collect(&self.schema, self.validator.iter_errors(&tree));
        }
        self.refuse(faults)?;
        changes.finish(&text, value)
    }

    /// Whether a text is valid as it is: nothing needs a repair, and no key is ignored. This is the fast path
    /// of most calls, and it copies very little.
    fn is_valid_unchanged(&self, text: &str) -> bool {
        let Some(ParsedTree { tree, has_whole_float: false }) = JsonTree::read(text) else { return false };
        let JsonTree::Object(members) = &tree else { return false };
        self.known_keys.includes_all(members.names()) && self.validator.is_valid(&tree)
    }

    /// Refuses floats such as 5.0 where integers are expected. JSON Schema counts 5.0 as an integer, so
    /// [`ArgumentSchema::check`] accepts it, but a typed decoder refuses it. If repairs are off, call this
    /// before asking an approver.
    ///
    /// # Errors
    /// `invalid_arguments`, with all such numbers in one message.
    pub fn ensure_whole_numbers(&self, args: &ToolArgs) -> Result<(), ToolError> {
        if !has_whole_float(args.value()) {
            return Ok(());
        }
        let mut faults = ArgumentFaults::default();
        let mut repaired = args.value().clone();
        for location in repair(&mut repaired, &self.schema, RepairScope::WholeNumbers).locations {
            faults.add_not_an_integer(args.value(), location);
        }
        self.refuse(faults)
    }

    /// Returns all faults as one error, or `Ok` if there are none. The error has an example if a value is
    /// wrong.
    fn refuse(&self, faults: ArgumentFaults) -> Result<(), ToolError> {
        if faults.is_empty() {
            return Ok(());
        }
        let example = self.example().filter(|example| faults.needs_example(example));
        faults.into_result().map_err(|error| match example {
            Some(example) => error.with_hint(format!("example: {example}")),
            None => error,
        })
    }
}

impl fmt::Debug for ArgumentSchema {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ArgumentSchema").field("schema", &self.schema).finish_non_exhaustive()
    }
}

/// Whether lossless repairs are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Repairs {
    /// Repairs are made and listed.
    Allowed,
    /// Arguments that do not fit are refused. Used for privileged tools, whose arguments a person approves.
    Off,
}

/// Arguments that fit a tool's schema.
#[derive(Debug, Clone, PartialEq)]
pub struct CheckedArguments {
    /// The arguments for the tool.
    pub args: ToolArgs,
    /// The locations of the repaired values, such as `limit` or `filters/0/size`. The root is `arguments`.
    pub repaired: Vec<String>,
    /// The unknown keys that were left out.
    pub ignored: Vec<String>,
}

/// Why a schema cannot be compiled.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum SchemaError {
    /// The schema does not describe an object, or also allows other types.
    #[error("the schema does not describe an object: its type must be `object`")]
    NotAnObject,
    /// The schema is too long.
    #[error("the schema has {bytes} bytes, at most {MAX_SCHEMA_BYTES} are allowed")]
    TooLarge {
        /// The schema's length as JSON.
        bytes: usize,
    },
    /// The schema is nested too deep.
    #[error("the schema is nested too deep")]
    TooDeep,
    /// One value would be checked against too many subschemas.
    #[error("the schema has too many alternatives for one value")]
    TooComplex,
    /// The schema has too many patterns, each of which may compile to a megabyte.
    #[error("the schema has more than {MAX_PATTERNS} patterns")]
    TooManyPatterns,
    /// A reference leads to no schema within this one, or to two schemas of the same name.
    #[error("the schema refers to `{reference}`, which is not one schema within it")]
    Reference {
        /// The reference, as the schema has it.
        reference: String,
    },
    /// The schema is not valid draft 2020-12, or has a pattern that cannot be matched in linear time.
    #[error("the schema is malformed at `{pointer}/`: {problem}")]
    Malformed {
        /// The location of the fault, as a JSON pointer.
        pointer: String,
        /// The fault in words, from the validator.
        problem: String,
    },
}

/// Decodes the text and returns the object. An empty text is read as `{}`. If repairs are allowed, `null`
/// counts as no arguments, and an object quoted as a string is decoded again: some models write these.
fn open<'t>(
    text: &'t str,
    repairs: Repairs,
    changes: &mut ArgumentEdits,
) -> Result<(Cow<'t, str>, Value), ToolError> {
    if text.len() <= MAX_ARGUMENT_BYTES && text.bytes().all(|byte| byte.is_ascii_whitespace()) {
        return Ok((Cow::Borrowed("{}"), Value::Object(Map::new())));
    }
    let value = decode_strict(text)?;
    let opened = match (&value, repairs) {
        (Value::Null, Repairs::Allowed) => Some((Value::Object(Map::new()), "{}".to_owned())),
        (Value::String(inner), Repairs::Allowed) if inner.trim().is_empty() => {
            Some((Value::Object(Map::new()), "{}".to_owned()))
        }
        (Value::String(inner), Repairs::Allowed) => {
            reread(inner, Types::OBJECT, MAX_ARGUMENT_DEPTH).map(|(value, _)| (value, inner.clone()))
        }
        _ => None,
    };
    Ok(match opened {
        Some((value, text)) => {
            changes.repaired.push(location_name(&[]));
            (Cow::Owned(text), value)
        }
        None => (Cow::Borrowed(text), value),
    })
}

/// The changes to a call's arguments. [`ArgumentEdits::finish`] applies them to the text.
#[derive(Debug, Default)]
struct ArgumentEdits {
    edits: BTreeMap<String, ValueEdit>,
    repaired: Vec<String>,
    ignored: Vec<String>,
}

impl ArgumentEdits {
    fn ignore_unknown(&mut self, members: &mut Map<String, Value>, known_keys: &KnownKeys) {
        let KnownKeys::Listed(known_names) = known_keys else { return };
        if members.keys().all(|key| known_names.contains(key)) {
            return;
        }
        members.retain(|key, _| {
            let is_known = known_names.contains(key);
            if !is_known {
                self.ignored.push(show_name(key));
                self.edits.insert(key.clone(), ValueEdit::Remove);
            }
            is_known
        });
    }

    fn take(&mut self, repaired: RepairResult) {
        self.repaired.extend(repaired.locations.iter().map(|location| location_name(location)));
        if let Some(ValueEdit::Members(edits)) = repaired.edit {
            self.edits.extend(edits);
        }
    }

    fn finish(self, text: &str, value: Value) -> Result<CheckedArguments, ToolError> {
        let args = if self.edits.is_empty() {
            ToolArgs::from_decoded(text, value)
        } else {
            let text = rewrite(text, &ValueEdit::Members(self.edits))
                .map_err(|error| ToolError::internal(format!("checked arguments do not decode: {error}")))?;
            ToolArgs::from_decoded(text, value)
        };
        Ok(CheckedArguments { args, repaired: self.repaired, ignored: self.ignored })
    }
}

/// Whether a schema names draft 2020-12 as its dialect, in which formats are annotations. Without `$schema`
/// the implementation may choose, and a checked format helps a tool more.
fn names_its_dialect(schema: &Value) -> bool {
    let name = schema.get("$schema").and_then(Value::as_str).map(|name| name.trim_end_matches('#'));
    name == Some("https://json-schema.org/draft/2020-12/schema")
}

/// The top-level keys that arguments may have.
#[derive(Debug)]
enum KnownKeys {
    /// Any key: the schema accepts every key, or refuses unknown keys itself.
    Any,
    /// Only these keys. The schema ignores all others, so the check drops them.
    Listed(BTreeSet<String>),
}

impl KnownKeys {
    fn includes_all<'n>(&self, mut names: impl Iterator<Item = &'n str>) -> bool {
        match self {
            Self::Any => true,
            Self::Listed(known) => names.all(|name| known.contains(name)),
        }
    }

    fn from_schema(schema: &Value) -> Self {
        if KEYWORDS_ON_OTHER_KEYS.iter().any(|keyword| schema.get(keyword).is_some()) {
            return Self::Any;
        }
        let properties = schema.get("properties").and_then(Value::as_object);
        let required = schema.get("required").and_then(Value::as_array);
        // A required key counts as known even without a separate property.
        let property_names = properties.into_iter().flat_map(Map::keys).cloned();
        let required = required.into_iter().flatten().filter_map(Value::as_str).map(str::to_owned);
        Self::Listed(property_names.chain(required).collect())
    }
}

/// Keywords that can give meaning to a key outside the schema's `properties`.
const KEYWORDS_ON_OTHER_KEYS: [&str; 17] = [
    "$dynamicRef",
    "$ref",
    "additionalProperties",
    "allOf",
    "anyOf",
    "dependentRequired",
    "dependentSchemas",
    "else",
    "if",
    "maxProperties",
    "minProperties",
    "not",
    "oneOf",
    "patternProperties",
    "propertyNames",
    "then",
    "unevaluatedProperties",
];

/// The maximum length of an example shown to a model.
const MAX_EXAMPLE_BYTES: usize = 512;

/// The maximum size of a compiled pattern: 1 MiB. `(((a{99}){99}){99})` is short, but compiles to far more.
const MAX_PATTERN_BYTES: usize = 1 << 20;
