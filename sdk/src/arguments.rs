//! Parses the text of a call's arguments field by field, and collects all mistakes of one call.
//!
//! The registry has already checked the same text against the schema. This check makes a tool correct without
//! a registry, for instance if a program calls `Tool::execute` directly. Numbers are decoded from their
//! text, because a JSON value in memory cannot represent a `u128`.

use std::{collections::BTreeSet, fmt};

use portcullis_types::ToolError;
use serde::{
    Deserializer,
    de::{self, DeserializeSeed, IgnoredAny, MapAccess, Visitor},
};
use serde_json::value::RawValue;

use crate::{
    ParamSpec, ToolSpec, UnknownKeys,
    decode::{DecodeFn, Faults, Primitive},
};

/// The fields of one call.
#[derive(Debug)]
pub struct Fields<'a> {
    spec: &'static ToolSpec,
    /// The text of each argument, by the parameter's index; `None` if the argument is absent.
    slots: Vec<Option<&'a RawValue>>,
    faults: Vec<String>,
    /// Whether the text is not an object. Missing fields are not reported then.
    is_malformed: bool,
    /// Makes example arguments, if a mistake needs an example.
    example: Option<fn(&ToolSpec) -> String>,
}

impl<'a> Fields<'a> {
    /// Parses the text. Faults are collected for [`Fields::into_error`].
    #[must_use]
    pub fn parse(text: &'a str, spec: &'static ToolSpec) -> Self {
        let mut fields = Self {
            spec,
            slots: vec![None; spec.params.len()],
            faults: Vec::new(),
            is_malformed: false,
            example: None,
        };
        // Some models write "no arguments" as an empty text.
        if text.trim_ascii().is_empty() {
            return fields;
        }
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let parsed = deserializer.deserialize_any(Object(&mut fields)).and_then(|()| deserializer.end());
        if let Err(error) = parsed {
            fields.is_malformed = true;
            let fault = if error.is_data() {
                "arguments must be one JSON object".to_owned()
            } else {
                format!("arguments are not valid JSON: {error}")
            };
            // Drop earlier mistakes, because the text as a whole is wrong.
            fields.faults = vec![fault];
        }
        fields
    }

    /// Returns a required primitive; `None` after a mistake.
    pub fn required<T: Primitive>(&mut self, index: usize) -> Option<T> {
        self.required_by(index, primitive)
    }

    /// Returns a primitive that may be omitted or null. The outer `None` means a mistake, the inner `None` an
    /// omitted argument.
    pub fn optional<T: Primitive>(&mut self, index: usize) -> Option<Option<T>> {
        self.optional_by(index, primitive)
    }

    /// Returns a primitive with a default; `None` after a mistake.
    pub fn defaulted<T: Primitive>(&mut self, index: usize, default: T) -> Option<T> {
        Some(self.optional(index)?.unwrap_or(default))
    }

    /// Returns a required argument; `None` after a mistake.
    pub fn required_by<T>(&mut self, index: usize, decode: DecodeFn<T>) -> Option<T> {
        // Try null as a value first, because an author's type may give null a meaning.
        if let Some(raw) = self.slots[index].filter(|raw| raw.get() == "null")
            && self.spec.params[index].kind.is_structured()
            && let Ok(value) = decode(raw, &self.spec.params[index])
        {
            return Some(value);
        }
        match self.optional_by(index, decode)? {
            Some(value) => Some(value),
            None => {
                if !self.is_malformed {
                    let name = self.spec.params[index].name;
                    self.faults.push(format!("missing required field '{name}' in arguments"));
                }
                None
            }
        }
    }

    /// Returns an argument that may be omitted or null; `None` after a mistake.
    pub fn optional_by<T>(&mut self, index: usize, decode: DecodeFn<T>) -> Option<Option<T>> {
        let param = &self.spec.params[index];
        let Some(raw) = self.slots[index].filter(|raw| raw.get() != "null") else {
            return Some(None);
        };
        match decode(raw, param) {
            Ok(value) => Some(Some(value)),
            Err(mistakes) => {
                self.faults.extend(mistakes.texts);
                self.example = self.example.or(mistakes.example);
                None
            }
        }
    }

    /// Returns an argument with a default; `None` after a mistake.
    pub fn defaulted_by<T>(
        &mut self,
        index: usize,
        decode: DecodeFn<T>,
        default: impl FnOnce() -> T,
    ) -> Option<T> {
        Some(self.optional_by(index, decode)?.unwrap_or_else(default))
    }

    /// Returns whether there are no mistakes.
    #[must_use]
    pub fn complete(&self) -> bool {
        self.faults.is_empty()
    }

    /// Returns all mistakes as one error.
    #[must_use]
    pub fn into_error(self) -> ToolError {
        let error = ToolError::invalid_arguments(self.faults.join("; "));
        match self.example {
            Some(example) => error.with_hint(format!("example: {}", example(self.spec))),
            None => error,
        }
    }

    fn report_unknown_field(&mut self, key: &str) {
        if self.spec.unknown_keys == UnknownKeys::Ignore {
            return;
        }
        let known: Vec<String> = self.spec.params.iter().map(|param| format!("'{}'", param.name)).collect();
        let known = if known.is_empty() { "there are none".to_owned() } else { known.join(", ") };
        self.faults.push(format!("unknown field '{key}' in arguments (fields: {known})"));
    }
}

fn primitive<T: Primitive>(raw: &RawValue, param: &ParamSpec) -> Result<T, Faults> {
    T::decode(raw, param)
        .map_err(|fault| Faults { texts: vec![format!("field '{}': {fault}", param.name)], example: None })
}

struct Object<'f, 'a>(&'f mut Fields<'a>);

impl<'de> Visitor<'de> for Object<'_, 'de> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let fields = self.0;
        let mut is_present = vec![false; fields.slots.len()];
        let mut unknown = BTreeSet::new();
        while let Some(key) = map.next_key_seed(FieldNameSeed(fields.spec))? {
            let index = match key {
                FoundKey::Param(index) => index,
                FoundKey::Unknown(key) => {
                    map.next_value::<IgnoredAny>()?;
                    if unknown.contains(&key) {
                        fields.faults.push(format!("field '{key}' is given twice"));
                    } else {
                        fields.report_unknown_field(&key);
                        unknown.insert(key);
                    }
                    continue;
                }
            };
            let raw: &RawValue = map.next_value()?;
            // Refuse duplicate keys: a reader that keeps the first value and a reader that keeps the last would see
            // different calls.
            if std::mem::replace(&mut is_present[index], true) {
                let name = fields.spec.params[index].name;
                fields.faults.push(format!("field '{name}' is given twice"));
            }
            fields.slots[index] = Some(raw);
        }
        Ok(())
    }
}

struct FieldNameSeed(&'static ToolSpec);

enum FoundKey {
    Param(usize),
    Unknown(String),
}

impl<'de> DeserializeSeed<'de> for FieldNameSeed {
    type Value = FoundKey;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<FoundKey, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for FieldNameSeed {
    type Value = FoundKey;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a field name")
    }

    fn visit_str<E: de::Error>(self, key: &str) -> Result<FoundKey, E> {
        let position = self.0.params.iter().position(|param| param.name == key);
        Ok(position.map_or_else(|| FoundKey::Unknown(key.to_owned()), FoundKey::Param))
    }
}

#[cfg(test)]
mod tests {
    use crate::{ToolError, testing, tool};

    /// Says what it took, and takes nothing else.
    #[tool(deny_unknown)]
    async fn strict(path: &str, limit: Option<u8>, #[arg(max = 9)] wide: Option<u128>) -> String {
        format!("{path} {limit:?} {wide:?}")
    }

    /// Says what it took.
    #[tool]
    async fn loose(
        ratio: Option<f32>,
        exact: Option<f64>,
        flag: Option<bool>,
        large: Option<u128>,
    ) -> String {
        format!("{ratio:?} {exact:?} {flag:?} {large:?}")
    }

    #[track_caller]
    fn check_refused(arguments: &str, message: &str) {
        let error = testing::call(&strict_tool(), arguments).expect_err("refused");
        assert_eq!(error, ToolError::invalid_arguments(message));
    }

    #[track_caller]
    fn check_accepted(arguments: &str, text: &str) {
        let output = testing::call(&loose_tool(), arguments).expect("taken");
        assert_eq!(output.joined_text(), text);
    }

    #[test]
    fn mistakes_are_explained_so_that_a_model_can_fix_them() {
        check_refused("{}", "missing required field 'path' in arguments");
        check_refused("", "missing required field 'path' in arguments");
        check_refused(r#"{"path":null}"#, "missing required field 'path' in arguments");
        check_refused(r#"{"path":1}"#, "field 'path': 1 is not a string");
        check_refused(r#"{"path":"p","limit":"x"}"#, "field 'limit': \"x\" is not an integer");
        check_refused(r#"{"path":"p","limit":5.5}"#, "field 'limit': 5.5 is not an integer");
        check_refused(r#"{"path":"p","limit":256.0}"#, "field 'limit': 256.0 is not between 0 and 255");
        check_refused(r#"{"path":"p","limit":256}"#, "field 'limit': 256 is not between 0 and 255");
        check_refused(r#"{"path":"p","limit":-1}"#, "field 'limit': -1 is not between 0 and 255");
        check_refused(r#"{"path":"p","wide":10}"#, "field 'wide': 10 is greater than the maximum of 9");
        check_refused(
            r#"{"path":"p","wide":340282366920938463463374607431768211455}"#,
            "field 'wide': 340282366920938463463374607431768211455 is greater than the maximum of 9",
        );
        check_refused(
            r#"{"pth":"p"}"#,
            "unknown field 'pth' in arguments (fields: 'path', 'limit', 'wide'); missing required field 'path' in arguments",
        );
        check_refused(r#"{"path":"p","path":"q"}"#, "field 'path' is given twice");
        check_refused(
            r#"{"path":"p","x":1,"x":2}"#,
            "unknown field 'x' in arguments (fields: 'path', 'limit', 'wide'); field 'x' is given twice",
        );
        check_refused(
            r#"{"path":"p","limit":[],"wide":true}"#,
            "field 'limit': [] is not an integer; field 'wide': true is not an integer",
        );
        check_refused("[]", "arguments must be one JSON object");
        check_refused("null", "arguments must be one JSON object");
        check_refused(
            r#"{"path":"p"} x"#,
            "arguments are not valid JSON: trailing characters at line 1 column 14",
        );
    }

    #[test]
    fn a_long_wrong_value_is_repeated_only_in_part() {
        let long = "é".repeat(1000);
        let error = testing::call(&strict_tool(), &format!(r#"{{"path":"p","limit":"{long}"}}"#));
        let message = error.expect_err("refused").to_string();
        assert_eq!(message, format!("field 'limit': \"{}… is not an integer", "é".repeat(59)));
    }

    #[test]
    fn values_keep_every_digit() {
        check_accepted(
            r#"{"large":340282366920938463463374607431768211455}"#,
            "None None None Some(340282366920938463463374607431768211455)",
        );
        check_accepted(
            r#"{"ratio":1,"exact":1e300,"flag":true,"unknown":{}}"#,
            "Some(1.0) Some(1e300) Some(true) None",
        );
    }

    #[test]
    fn whole_numbers_may_be_written_with_a_point() {
        let output =
            testing::call(&strict_tool(), r#"{"path":"p","limit":5.0,"wide":90e-1}"#).expect("taken");
        assert_eq!(output.joined_text(), "p Some(5) Some(9)");
    }

    #[test]
    fn a_number_too_large_for_its_type_is_refused() {
        for arguments in [r#"{"ratio":1e39}"#, r#"{"exact":1e999}"#] {
            assert!(testing::call(&loose_tool(), arguments).is_err(), "{arguments}");
        }
    }

    #[test]
    fn property_names_may_be_escaped() {
        check_accepted(r#"{"fl\u0061g":true}"#, "None None Some(true) None");
    }
}
