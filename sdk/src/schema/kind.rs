//! The kinds of parameters. They are constant data, so that a tool without the author's types does not link the code
//! that makes schemas of types.

use serde_json::{Map, Value, json};

use super::Definitions;

/// The kind of a parameter.
#[derive(Debug, Clone, Copy)]
#[non_exhaustive]
pub enum ParamKind {
    /// A text, which JSON writes as a string.
    String,
    /// True or false.
    Boolean,
    /// A whole number.
    Integer,
    /// Any number.
    Number,
    /// Any JSON.
    Any,
    /// A list whose items all have one kind.
    List {
        /// The kind of each item.
        items: &'static ParamKind,
        /// The number of items, if fixed.
        length: Option<usize>,
    },
    /// A list with a fixed length and a kind for each position.
    Tuple(&'static [ParamKind]),
    /// An object with arbitrary keys.
    Map(&'static ParamKind),
    /// A value or null, for instance within a list. An optional parameter has
    /// [`Requiredness::Optional`](crate::Requiredness::Optional) instead.
    Nullable(&'static ParamKind),
    /// A type with its own schema.
    Typed(fn(Option<&str>, &mut Definitions) -> Map<String, Value>),
}

impl ParamKind {
    /// Returns whether a value of the kind has parts or an author's type.
    #[must_use]
    pub const fn is_structured(&self) -> bool {
        !matches!(self, Self::String | Self::Boolean | Self::Integer | Self::Number)
    }

    /// Returns the schema, with the description if one is given.
    pub(crate) fn schema(
        &self,
        description: Option<&str>,
        definitions: &mut Definitions,
    ) -> Map<String, Value> {
        let mut schema = match self {
            Self::Typed(typed) => return typed(description, definitions),
            Self::String => simple("string"),
            Self::Boolean => simple("boolean"),
            Self::Integer => simple("integer"),
            Self::Number => simple("number"),
            Self::Any => Map::new(),
            Self::List { items, length } => {
                let mut list = simple("array");
                list.insert("items".into(), items.schema(None, definitions).into());
                // JSON Schema has no exact length, so an array gets both bounds.
                if let Some(length) = length {
                    list.insert("maxItems".into(), (*length).into());
                    list.insert("minItems".into(), (*length).into());
                }
                list
            }
            Self::Tuple(places) => {
                let mut list = simple("array");
                let kinds: Vec<Value> =
                    places.iter().map(|element| element.schema(None, definitions).into()).collect();
                list.insert("maxItems".into(), kinds.len().into());
                list.insert("minItems".into(), kinds.len().into());
                list.insert("prefixItems".into(), kinds.into());
                list
            }
            Self::Map(values) => {
                let mut map = simple("object");
                let values = values.schema(None, definitions);
                let values = if values.is_empty() { Value::Bool(true) } else { values.into() };
                map.insert("additionalProperties".into(), values);
                map
            }
            Self::Nullable(inner) => nullable(inner.schema(None, definitions)),
        };
        if let Some(description) = description {
            schema.insert("description".into(), description.into());
        }
        schema
    }
}

fn simple(kind: &str) -> Map<String, Value> {
    Map::from_iter([("type".to_owned(), kind.into())])
}

fn nullable(mut schema: Map<String, Value>) -> Map<String, Value> {
    if schema.is_empty() {
        return schema;
    }
    if let Some(Value::String(kind)) = schema.get("type").cloned()
        && !schema.contains_key("enum")
    {
        schema.insert("type".into(), json!([kind, "null"]));
        return schema;
    }
    Map::from_iter([("anyOf".to_owned(), json!([schema, {"type": "null"}]))])
}
