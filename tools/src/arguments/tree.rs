//! The parsed arguments, in the form that the validator reads, mostly borrowed from their text.
//!
//! A `Value` copies every key and string, and builds a map for every object. For a long list of objects that
//! takes longer than all checks together, and most calls do not need it. This reader is as strict as
//! [`super::decode`], which explains the fault when this reader refuses a text.

use std::{borrow::Cow, cell::Cell, fmt};

use jsonschema::{
    JsonType,
    json::{Array, Json, Node, NodeIdentity, Object},
};
use serde::de::{Deserialize, DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Number, Value};

use super::decode::{MAX_ARGUMENT_BYTES, MAX_ARGUMENT_DEPTH};

/// A JSON value.
#[derive(Debug)]
pub(super) enum JsonTree<'t> {
    Null,
    Bool(bool),
    Number(Number),
    Text(Cow<'t, str>),
    Array(Vec<JsonTree<'t>>),
    Object(Members<'t>),
}

/// The result of [`JsonTree::read`].
pub(super) struct ParsedTree<'t> {
    pub(super) tree: JsonTree<'t>,
    /// Whether the tree contains a whole number in float notation, such as 5.0.
    pub(super) has_whole_float: bool,
}

impl<'t> JsonTree<'t> {
    /// Parses a text. `None` if strict decoding would refuse the text.
    pub(super) fn read(text: &'t str) -> Option<ParsedTree<'t>> {
        if text.len() > MAX_ARGUMENT_BYTES {
            return None;
        }
        let has_whole_float = Cell::new(false);
        let mut deserializer = serde_json::Deserializer::from_str(text);
        let tree =
            TreeReader { depth: 0, has_whole_float: &has_whole_float }.deserialize(&mut deserializer).ok()?;
        deserializer.end().ok()?;
        Some(ParsedTree { tree, has_whole_float: has_whole_float.get() })
    }

    /// Builds the tree of a value that is already decoded.
    pub(super) fn new(value: &'t Value) -> Self {
        match value {
            Value::Null => Self::Null,
            Value::Bool(value) => Self::Bool(*value),
            Value::Number(number) => Self::Number(number.clone()),
            Value::String(text) => Self::Text(Cow::Borrowed(text)),
            Value::Array(items) => Self::Array(items.iter().map(Self::new).collect()),
            // The keys of a `Value` are sorted, as `Members` requires.
            Value::Object(members) => Self::Object(Members(
                members
                    .iter()
                    .map(|(name, value)| (Cow::Borrowed(name.as_str()), Self::new(value)))
                    .collect(),
            )),
        }
    }

    fn value(&self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(*value),
            Self::Number(number) => Value::Number(number.clone()),
            Self::Text(text) => Value::String(text.as_ref().to_owned()),
            Self::Array(items) => items.iter().map(JsonTree::value).collect(),
            Self::Object(Members(members)) => {
                members.iter().map(|(name, value)| (name.as_ref().to_owned(), value.value())).collect()
            }
        }
    }
}

/// The members of an object, sorted by name if there are more than [`MAX_UNSORTED_MEMBERS`].
#[derive(Debug)]
pub(super) struct Members<'t>(Vec<(Cow<'t, str>, JsonTree<'t>)>);

impl<'t> Members<'t> {
    /// Returns `None` if a name occurs twice.
    fn new(mut members: Vec<(Cow<'t, str>, JsonTree<'t>)>) -> Option<Self> {
        let unique = if members.len() > MAX_UNSORTED_MEMBERS {
            members.sort_by(|(left, _), (right, _)| left.cmp(right));
            members.windows(2).all(|pair| pair[0].0 != pair[1].0)
        } else {
            let members_after = |index: usize| &members[index + 1..];
            members
                .iter()
                .enumerate()
                .all(|(index, (name, _))| members_after(index).iter().all(|(other, _)| other != name))
        };
        unique.then_some(Self(members))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(|(name, _)| name.as_ref())
    }

    fn get(&self, name: &str) -> Option<&JsonTree<'t>> {
        let index = if self.0.len() > MAX_UNSORTED_MEMBERS {
            self.0.binary_search_by(|(other, _)| other.as_ref().cmp(name)).ok()?
        } else {
            self.0.iter().position(|(other, _)| other == name)?
        };
        Some(&self.0[index].1)
    }
}

/// Up to this many members, a linear search is faster than a sort.
const MAX_UNSORTED_MEMBERS: usize = 8;

/// Reads one value and tracks its depth.
#[derive(Clone, Copy)]
struct TreeReader<'c> {
    depth: usize,
    has_whole_float: &'c Cell<bool>,
}

impl TreeReader<'_> {
    /// Returns the reader of a nested value. Fails beyond [`MAX_ARGUMENT_DEPTH`].
    fn descend<E: Error>(self) -> Result<Self, E> {
        if self.depth == MAX_ARGUMENT_DEPTH {
            return Err(E::custom("too deep"));
        }
        Ok(Self { depth: self.depth + 1, ..self })
    }
}

impl<'de> DeserializeSeed<'de> for TreeReader<'_> {
    type Value = JsonTree<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<JsonTree<'de>, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for TreeReader<'_> {
    type Value = JsonTree<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Bool(value))
    }

    fn visit_u64<E>(self, value: u64) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Number(value.into()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Number(value.into()))
    }

    fn visit_f64<E: Error>(self, value: f64) -> Result<JsonTree<'de>, E> {
        if value.fract() == 0.0 {
            self.has_whole_float.set(true);
        }
        Number::from_f64(value).map(JsonTree::Number).ok_or_else(|| E::custom("number out of range"))
    }

    fn visit_borrowed_str<E>(self, value: &'de str) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Text(Cow::Borrowed(value)))
    }

    fn visit_str<E>(self, value: &str) -> Result<JsonTree<'de>, E> {
        Ok(JsonTree::Text(Cow::Owned(value.to_owned())))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<JsonTree<'de>, A::Error> {
        let inner = self.descend()?;
        let mut array = Vec::new();
        while let Some(item) = items.next_element_seed(inner)? {
            array.push(item);
        }
        Ok(JsonTree::Array(array))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<JsonTree<'de>, A::Error> {
        let inner = self.descend()?;
        let mut members = Vec::new();
        while let Some(MemberName(name)) = entries.next_key()? {
            members.push((name, entries.next_value_seed(inner)?));
        }
        Members::new(members).map(JsonTree::Object).ok_or_else(|| A::Error::custom("duplicate key"))
    }
}

/// A member's name, borrowed from the text unless it has escapes.
struct MemberName<'de>(Cow<'de, str>);

impl<'de> Deserialize<'de> for MemberName<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_str(NameVisitor)
    }
}

struct NameVisitor;

impl<'de> Visitor<'de> for NameVisitor {
    type Value = MemberName<'de>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a name")
    }

    fn visit_borrowed_str<E>(self, name: &'de str) -> Result<MemberName<'de>, E> {
        Ok(MemberName(Cow::Borrowed(name)))
    }

    fn visit_str<E>(self, name: &str) -> Result<MemberName<'de>, E> {
        Ok(MemberName(Cow::Owned(name.to_owned())))
    }
}

/// The value type of the validator for [`JsonTree`].
pub(super) struct JsonTreeFormat;

impl Json for JsonTreeFormat {
    type Node<'a> = &'a JsonTree<'a>;
    type PreparedKey = String;
    type StringBuffer = ();

    fn prepare_key(key: &str) -> String {
        key.to_owned()
    }

    fn with_string_node<T>((): &mut (), string: &str, f: impl FnOnce(Self::Node<'_>) -> T) -> T {
        f(&JsonTree::Text(Cow::Borrowed(string)))
    }
}

impl<'a> Node<'a, JsonTreeFormat> for &'a JsonTree<'a> {
    type Object = &'a Members<'a>;
    type Array = &'a [JsonTree<'a>];
    type Number = &'a Number;

    fn as_object(&self) -> Option<&'a Members<'a>> {
        match self {
            JsonTree::Object(members) => Some(members),
            _ => None,
        }
    }

    fn as_array(&self) -> Option<&'a [JsonTree<'a>]> {
        match self {
            JsonTree::Array(items) => Some(items),
            _ => None,
        }
    }

    fn as_string(&self) -> Option<Cow<'a, str>> {
        match self {
            JsonTree::Text(text) => Some(Cow::Borrowed(text)),
            _ => None,
        }
    }

    fn as_number(&self) -> Option<&'a Number> {
        match self {
            JsonTree::Number(number) => Some(number),
            _ => None,
        }
    }

    fn as_boolean(&self) -> Option<bool> {
        match self {
            JsonTree::Bool(value) => Some(*value),
            _ => None,
        }
    }

    fn is_null(&self) -> bool {
        matches!(self, JsonTree::Null)
    }

    fn json_type(&self) -> JsonType {
        match self {
            JsonTree::Null => JsonType::Null,
            JsonTree::Bool(_) => JsonType::Boolean,
            JsonTree::Number(_) => JsonType::Number,
            JsonTree::Text(_) => JsonType::String,
            JsonTree::Array(_) => JsonType::Array,
            JsonTree::Object(_) => JsonType::Object,
        }
    }

    fn equals_value(&self, expected: &Value) -> bool {
        match (self, expected) {
            (JsonTree::Text(text), Value::String(expected)) => text == expected,
            (JsonTree::Text(_), _) | (_, Value::String(_)) => false,
            // Strings are compared without a copy. Other values are copied to a `Value`.
            _ => jsonschema::json::cmp::equal(&self.value(), expected),
        }
    }

    fn to_value(&self) -> Cow<'a, Value> {
        Cow::Owned(self.value())
    }

    fn identity(&self) -> Option<NodeIdentity> {
        // A borrowed node does not move, so its address identifies it.
        Some(NodeIdentity::new(std::ptr::from_ref::<JsonTree<'a>>(self).addr()))
    }
}

impl<'a> Object<'a, JsonTreeFormat> for &'a Members<'a> {
    type Node = &'a JsonTree<'a>;
    type MemberName = &'a str;
    type MembersIter = MembersIter<'a>;

    fn len(&self) -> usize {
        self.0.len()
    }

    fn get(&self, key: &String) -> Option<&'a JsonTree<'a>> {
        (*self).get(key.as_str())
    }

    fn members(&self) -> MembersIter<'a> {
        MembersIter(self.0.iter())
    }
}

/// Iterator over names and values.
pub(super) struct MembersIter<'a>(std::slice::Iter<'a, (Cow<'a, str>, JsonTree<'a>)>);

impl<'a> Iterator for MembersIter<'a> {
    type Item = (&'a str, &'a JsonTree<'a>);

    fn next(&mut self) -> Option<Self::Item> {
        self.0.next().map(|(name, value)| (name.as_ref(), value))
    }
}

impl<'a> Array<'a, JsonTreeFormat> for &'a [JsonTree<'a>] {
    type Node = &'a JsonTree<'a>;
    type ElementsIter = std::slice::Iter<'a, JsonTree<'a>>;

    fn len(&self) -> usize {
        <[JsonTree<'_>]>::len(self)
    }

    fn elements(&self) -> std::slice::Iter<'a, JsonTree<'a>> {
        (*self).iter()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::{super::decode::decode_strict, *};

    #[track_caller]
    fn check(text: &str) {
        let decoded = JsonTree::read(text).map(|json| json.tree.value());
        assert_eq!(decoded, decode_strict(text).ok(), "{text}");
        if let Some(value) = decoded {
            assert_eq!(JsonTree::new(&value).value(), value, "{text}");
        }
    }

    #[test]
    fn tree_accepts_exactly_what_strict_decoding_accepts() {
        for text in [
            "",
            "null",
            " {} ",
            r#"{"a":[1,-1,1.5,1e3,18446744073709551615,-9223372036854775808,"x\n\u00e9",true,null]}"#,
            "340282366920938463463374607431768211455",
            "1e400",
            r#"{"a":1,"a":2}"#,
            r#"{"a":1,"\u0061":2}"#,
            r#"{"\u0061":{"b":{},"b":{}}}"#,
            r#""\ud800""#,
            r#"{"\ud800":1}"#,
            "{} x",
            "{",
            "NaN",
        ] {
            check(text);
        }
        for depth in [MAX_ARGUMENT_DEPTH, MAX_ARGUMENT_DEPTH + 1] {
            check(&format!("{}{}", "[".repeat(depth), "]".repeat(depth)));
        }
        for bytes in [MAX_ARGUMENT_BYTES, MAX_ARGUMENT_BYTES + 1] {
            check(&format!("\"{}\"", "x".repeat(bytes - 2)));
        }
        let members = |last: usize| {
            let members: Vec<String> =
                (0..30).chain([last]).map(|key| format!(r#""k{key}":{key}"#)).collect();
            format!("{{{}}}", members.join(","))
        };
        for last in [0, MAX_UNSORTED_MEMBERS - 1, MAX_UNSORTED_MEMBERS, 29, 30] {
            check(&members(last));
        }
    }

    #[test]
    fn a_whole_number_in_float_notation_is_noticed_at_any_depth() {
        for (text, expected) in
            [("[1,2.5]", false), ("[{\"a\":[1.0]}]", true), ("1e2", true), ("-0.0", true), ("\"1.0\"", false)]
        {
            let read = JsonTree::read(text).expect("JSON");
            assert_eq!(read.has_whole_float, expected, "{text}");
        }
    }

    /// Each keyword reads its values through other methods of the tree.
    #[test]
    fn the_validator_judges_a_tree_like_the_value() {
        let schemas = [
            json!({"const": {"a": [1, "x"]}}),
            json!({"enum": ["x", 1, null, [1.0], "ä"]}),
            json!({"uniqueItems": true}),
            json!({"maxLength": 1, "minLength": 1, "pattern": "^.$"}),
            json!({"propertyNames": {"maxLength": 1}, "minProperties": 1}),
            json!({"patternProperties": {"^k": {"type": "integer"}}, "additionalProperties": {"type": "array"}}),
            json!({"dependentRequired": {"a": ["b"]}, "properties": {"a": {"type": ["array", "number"]}}}),
            json!({"contains": {"multipleOf": 2}, "maxContains": 1}),
            json!({"prefixItems": [{"type": "integer"}], "items": {"type": "string"}}),
            json!({"$ref": "#/$defs/n", "$defs": {"n": {"type": ["object", "array"], "items": {"$ref": "#/$defs/n"}}}}),
            json!({"unevaluatedProperties": false, "anyOf": [{"properties": {"a": true}}, {"required": ["k7"]}]}),
            json!({"required": ["k0", "k9"]}),
        ];
        let many: serde_json::Map<_, _> = (0..12).map(|n| (format!("k{n}"), json!(n))).collect();
        let values = [
            json!({"a": [1, "x"]}),
            json!({"a": [1.0, "x"]}),
            json!("x"),
            json!("ä"),
            json!("xy"),
            json!([1, 1.0]),
            json!([2, 4, "x"]),
            json!([1, "x", {}]),
            json!([[], [{}], {"a": 1}]),
            json!({"a": 1}),
            json!({"ab": [], "k": 1.0}),
            json!([1.0]),
            json!(null),
            many.into(),
        ];
        let mut fitting = 0;
        for schema in &schemas {
            let trees = jsonschema::options_for::<JsonTreeFormat>().build(schema).expect("compiles");
            let value_validator = jsonschema::validator_for(schema).expect("compiles");
            for value in &values {
                let text = value.to_string();
                let read = JsonTree::read(&text).expect("JSON");
                let expected = value_validator.is_valid(value);
                assert_eq!(trees.is_valid(&read.tree), expected, "{schema} of {text}");
                let tree = JsonTree::new(value);
                let error_lines = |errors: jsonschema::ErrorIterator<'_>| -> Vec<String> {
                    errors.map(|error| format!("{} {error}", error.instance_path())).collect()
                };
                assert_eq!(
                    error_lines(trees.iter_errors(&tree)),
                    error_lines(value_validator.iter_errors(value)),
                    "{schema} of {text}"
                );
                fitting += usize::from(expected);
            }
        }
        assert!((20..schemas.len() * values.len() - 20).contains(&fitting), "{fitting} fit");
    }
}
