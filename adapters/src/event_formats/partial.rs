//! A parser for incomplete JSON. It reads as much of a value as the start of its text contains.

use serde_json::{Map, Value};

/// Parses a truncated JSON text. Strings have the text so far, and objects and arrays have the members so
/// far. A number, a literal or a key that may continue is omitted. Returns `None` if the text has no value
/// yet, is not JSON, or nests deeper than 64 objects and arrays.
#[must_use]
pub fn parse_partial(text: &str) -> Option<Value> {
    PartialReader { unread_text: text }.value(0).ok().and_then(|read| read.value)
}

/// The maximum nesting of objects and arrays.
const MAX_DEPTH: usize = 64;

struct PartialReader<'t> {
    unread_text: &'t str,
}

/// A value, and whether it is complete. An incomplete value ends the text.
struct PartialValue {
    value: Option<Value>,
    is_whole: bool,
}

/// The error of a text that is not JSON.
struct InvalidJson;

impl PartialValue {
    fn complete(value: Value) -> Self {
        Self { value: Some(value), is_whole: true }
    }

    fn incomplete(value: Value) -> Self {
        Self { value: Some(value), is_whole: false }
    }

    const NOTHING: Self = Self { value: None, is_whole: false };
}

impl PartialReader<'_> {
    fn value(&mut self, depth: usize) -> Result<PartialValue, InvalidJson> {
        match self.peek() {
            None => Ok(PartialValue::NOTHING),
            // Bound the depth, because the reader recurses.
            Some('{' | '[') if depth >= MAX_DEPTH => Err(InvalidJson),
            Some('{') => self.object(depth),
            Some('[') => self.array(depth),
            Some('"') => self.string(),
            Some(_) => self.scalar(),
        }
    }

    fn object(&mut self, depth: usize) -> Result<PartialValue, InvalidJson> {
        self.skip(1);
        let mut object = Map::new();
        if self.consume('}') {
            return Ok(PartialValue::complete(Value::Object(object)));
        }
        loop {
            let key = match self.peek() {
                None => return Ok(PartialValue::incomplete(Value::Object(object))),
                Some('"') => self.string()?,
                Some(_) => return Err(InvalidJson),
            };
            // Omit a truncated key, because the complete key may be a different one.
            let (Some(Value::String(key)), true) = (key.value, key.is_whole) else {
                return Ok(PartialValue::incomplete(Value::Object(object)));
            };
            if !self.consume(':') {
                return if self.peek().is_none() {
                    Ok(PartialValue::incomplete(Value::Object(object)))
                } else {
                    Err(InvalidJson)
                };
            }
            let PartialValue { value, is_whole } = self.value(depth + 1)?;
            if let Some(value) = value {
                object.insert(key, value);
            }
            if !is_whole {
                return Ok(PartialValue::incomplete(Value::Object(object)));
            }
            if self.consume('}') {
                return Ok(PartialValue::complete(Value::Object(object)));
            }
            if !self.consume(',') {
                return if self.peek().is_none() {
                    Ok(PartialValue::incomplete(Value::Object(object)))
                } else {
                    Err(InvalidJson)
                };
            }
        }
    }

    fn array(&mut self, depth: usize) -> Result<PartialValue, InvalidJson> {
        self.skip(1);
        let mut array = Vec::new();
        if self.consume(']') {
            return Ok(PartialValue::complete(Value::Array(array)));
        }
        loop {
            let PartialValue { value, is_whole } = self.value(depth + 1)?;
            // An incomplete number or literal has no value, so it adds no member.
            array.extend(value);
            if !is_whole {
                return Ok(PartialValue::incomplete(Value::Array(array)));
            }
            if self.consume(']') {
                return Ok(PartialValue::complete(Value::Array(array)));
            }
            if !self.consume(',') {
                return if self.peek().is_none() {
                    Ok(PartialValue::incomplete(Value::Array(array)))
                } else {
                    Err(InvalidJson)
                };
            }
        }
    }

    /// Finds the end of a string, and decodes it with `serde_json`. A truncated string is decoded up to its
    /// last complete character.
    fn string(&mut self) -> Result<PartialValue, InvalidJson> {
        let mut is_escaped = false;
        // Positions at which the string can be cut, one after each of its last characters, the latest first.
        let mut cut_ends = [1; MAX_ESCAPE_CHARS];
        for (index, char) in self.unread_text.char_indices().skip(1) {
            if char == '"' && !is_escaped {
                let text = &self.unread_text[..=index];
                self.unread_text = &self.unread_text[index + 1..];
                return Ok(PartialValue::complete(serde_json::from_str(text).ok().ok_or(InvalidJson)?));
            }
            is_escaped = char == '\\' && !is_escaped;
            cut_ends.rotate_right(1);
            cut_ends[0] = index + char.len_utf8();
        }
        // For a short text the last cut is 1, just after the opening quote, which gives the empty string.
        let parse_cut =
            |cut: &usize| serde_json::from_str::<Value>(&format!("{}\"", &self.unread_text[..*cut])).ok();
        let value = cut_ends.iter().find_map(parse_cut).ok_or(InvalidJson)?;
        self.unread_text = "";
        Ok(PartialValue::incomplete(value))
    }

    /// Parses a number, `true`, `false` or `null`. The word is complete only if a separator follows.
    fn scalar(&mut self) -> Result<PartialValue, InvalidJson> {
        let end = self.unread_text.find([',', '}', ']', ' ', '\t', '\n', '\r']);
        let Some(end) = end else {
            return Ok(PartialValue::NOTHING);
        };
        let value = serde_json::from_str(&self.unread_text[..end]).ok().ok_or(InvalidJson)?;
        self.unread_text = &self.unread_text[end..];
        Ok(PartialValue::complete(value))
    }

    /// Skips white space, and returns the next character without consuming it.
    fn peek(&mut self) -> Option<char> {
        self.unread_text = self.unread_text.trim_start_matches([' ', '\t', '\n', '\r']);
        self.unread_text.chars().next()
    }

    fn consume(&mut self, char: char) -> bool {
        let is_next = self.peek() == Some(char);
        if is_next {
            self.skip(char.len_utf8());
        }
        is_next
    }

    fn skip(&mut self, bytes: usize) {
        self.unread_text = &self.unread_text[bytes..];
    }
}

/// The maximum length of a truncated escape, in characters: `\uXXXX` twice without the last digit.
const MAX_ESCAPE_CHARS: usize = 12;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(text: &str, expected: Option<&Value>) {
        assert_eq!(parse_partial(text).as_ref(), expected, "{text}");
    }

    #[test]
    fn truncated_json_yields_its_complete_members() {
        check("", None);
        check("  ", None);
        check("{", Some(&json!({})));
        check(r#"{"pa"#, Some(&json!({})));
        check(r#"{"path""#, Some(&json!({})));
        check(r#"{"path": "#, Some(&json!({})));
        check(r#"{"path": "a b"#, Some(&json!({"path": "a b"})));
        check(r#"{"path": "a\"#, Some(&json!({"path": "a"})));
        check(r#"{"path": "a\n\u00e"#, Some(&json!({"path": "a\n"})));
        check(r#"{"path": "a\ud83d\ude8"#, Some(&json!({"path": "a"})));
        check(r#"{"path": "a\ud83d\ude80"#, Some(&json!({"path": "a🚀"})));
        check(r#"{"path": "ä", "n": 12"#, Some(&json!({"path": "ä"})));
        check(r#"{"n": 12, "#, Some(&json!({"n": 12})));
        check(r#"{"n": tru"#, Some(&json!({})));
        check(r#"[1, [2, {"a": [true, nul"#, Some(&json!([1, [2, {"a": [true]}]])));
        check(r#"{"a": {}, "b": []}"#, Some(&json!({"a": {}, "b": []})));
    }

    #[test]
    fn malformed_or_too_deep_json_yields_no_value() {
        for text in ["{1", "{\"a\" 1", "[1 2", "{\"a\": b,", "{\"a\":1 \"b\""] {
            check(text, None);
        }
        let deepest = (1..MAX_DEPTH).fold(json!([]), |inner, _| json!([inner]));
        check(&"[".repeat(MAX_DEPTH), Some(&deepest));
        check(&"[".repeat(MAX_DEPTH + 1), None);
        check(&"[".repeat(1_000_000), None);
    }

    fn any_json() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,8}".prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 24, 4, |inner| {
            prop_oneof![
                proptest::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                proptest::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    /// Whether one value is a start of the other.
    fn is_beginning_of(part: &Value, whole: &Value) -> bool {
        match (part, whole) {
            (Value::String(part), Value::String(whole)) => whole.starts_with(part.as_str()),
            (Value::Array(part), Value::Array(whole)) => {
                part.len() <= whole.len()
                    && part.iter().zip(whole).all(|(part, whole)| is_beginning_of(part, whole))
            }
            (Value::Object(part), Value::Object(whole)) => part
                .iter()
                .all(|(key, part)| whole.get(key).is_some_and(|whole| is_beginning_of(part, whole))),
            _ => part == whole,
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(64))]

        #[test]
        fn any_beginning_of_a_text_gives_a_beginning_of_its_value(value in any_json(), ascii: bool) {
            let value = json!({ "all": value });
            let mut text = value.to_string();
            if ascii {
                let mut units = [0; 2];
                text = text.chars().map(|char| match char {
                    '\u{80}'.. => {
                        let units = char.encode_utf16(&mut units);
                        units.iter().map(|unit| format!("\\u{unit:04x}")).collect()
                    }
                    _ => char.to_string(),
                }).collect();
            }
            for (cut, _) in text.char_indices().skip(1) {
                let part = parse_partial(&text[..cut]);
                prop_assert!(part.as_ref().is_some_and(|part| is_beginning_of(part, &value)), "{} {:?}", &text[..cut], part);
            }
            prop_assert_eq!(parse_partial(&text), Some(value));
        }

        #[test]
        fn no_input_makes_the_parser_panic(text in ".{0,64}", json in "[\\[\\]{}\":,\\\\u0-9a-f ]{0,64}") {
            let _ = (parse_partial(&text), parse_partial(&json));
        }
    }
}
