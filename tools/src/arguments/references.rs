//! Resolves the references of a schema, which must all stay within the schema.
//!
//! The validator resolves references by itself. The cost limits (`bounds`) and the repairs (`repair`) also
//! read the schema. They get a copy in which each reference is a pointer from the root, because the original
//! reference can be relative to an `$id`, name an `$anchor`, or be percent-encoded.

use std::collections::{HashMap, HashSet};

use jsonschema::{Uri, uri};
use serde_json::Value;

use super::{
    bounds::{DATA_KEYWORDS, SCHEMAS_BY_NAME},
    schema::SchemaError,
};

/// Returns a copy of the schema in which a reference with one target is a pointer. If the target depends on
/// the validator's dynamic scope, `$dynamicRef` lists all possible targets; such a copy is not valid JSON
/// Schema.
///
/// # Errors
/// [`SchemaError::Reference`] for a reference that leads to no schema within this one, for two schemas with the same
/// name, and for an invalid URI; [`SchemaError::TooComplex`] if the pointers are too long in total.
pub(super) fn spell_out_references(schema: &Value) -> Result<Value, SchemaError> {
    let id = schema.get("$id").and_then(Value::as_str).unwrap_or_default();
    let base = uri::from_str(id).map_err(|_not_an_address| unusable_reference(id))?;
    let mut survey = ReferenceSurvey { root: schema, schema_index: SchemaIndex::default(), path: Vec::new() };
    survey.schema(schema, &base)?;
    let SchemaIndex { references, .. } = &survey.schema_index;
    let mut targets: Targets = HashMap::new();
    let mut bytes = 0;
    for reference in references {
        let pointers = survey.schema_index.targets(reference)?;
        bytes += pointers.iter().map(String::len).sum::<usize>();
        if bytes > MAX_POINTER_BYTES {
            return Err(SchemaError::TooComplex);
        }
        targets.entry(address(reference.schema)).or_default().push(pointers);
    }
    Ok(spelled_out(schema, &targets))
}

/// The maximum total length of a schema's pointers: 1 MiB. A name can be as long as the schema, and each
/// pointer through it repeats the name.
const MAX_POINTER_BYTES: usize = 1 << 20;

/// The possible targets of each schema's references, by the schema's address in memory.
type Targets = HashMap<*const Value, Vec<Vec<String>>>;

/// Walks through a schema and collects the references and their possible targets.
struct ReferenceSurvey<'s> {
    root: &'s Value,
    schema_index: SchemaIndex<'s>,
    path: Vec<PointerStep<'s>>,
}

enum PointerStep<'s> {
    Key(&'s str),
    Index(usize),
}

#[derive(Default)]
struct SchemaIndex<'s> {
    /// By URI: the schema, and the pointer to it.
    resources: HashMap<String, (&'s Value, String)>,
    /// By URI and name: the pointer to the schema with that anchor.
    anchors: HashMap<(String, &'s str), String>,
    /// By name: the pointers to all schemas that a dynamic reference can resolve to.
    dynamic: HashMap<&'s str, Vec<String>>,
    references: Vec<Reference<'s>>,
    /// All schemas. A reference to anything else in the document is refused.
    schemas: HashSet<*const Value>,
    bytes: usize,
}

struct Reference<'s> {
    schema: &'s Value,
    base: Uri<String>,
    text: &'s str,
}

impl<'s> ReferenceSurvey<'s> {
    fn schema(&mut self, schema: &'s Value, base: &Uri<String>) -> Result<(), SchemaError> {
        if schema.is_object() || schema.is_boolean() {
            self.schema_index.schemas.insert(address(schema));
        }
        let Some(map) = schema.as_object() else { return Ok(()) };
        let text_of = |keyword: &str| map.get(keyword).and_then(Value::as_str);
        let is_root = std::ptr::eq(schema, self.root);
        let own_base = match text_of("$id") {
            // The `$id` of the root is already the base.
            Some(id) if !is_root => Some(resolve(base, id)?),
            _ => None,
        };
        if is_root || own_base.is_some() {
            let pointer = self.pointer()?;
            let name = without_fragment(own_base.as_ref().unwrap_or(base));
            if self.schema_index.resources.insert(name, (schema, pointer)).is_some() {
                return Err(unusable_reference(text_of("$id").unwrap_or_default()));
            }
        }
        let base = own_base.as_ref().unwrap_or(base);
        for keyword in ["$anchor", "$dynamicAnchor"] {
            let Some(name) = text_of(keyword) else { continue };
            let pointer = self.pointer()?;
            if keyword == "$dynamicAnchor" {
                self.schema_index.dynamic.entry(name).or_default().push(pointer.clone());
            }
            if self.schema_index.anchors.insert((without_fragment(base), name), pointer).is_some() {
                return Err(unusable_reference(name));
            }
        }
        for keyword in REFERENCE_KEYWORDS {
            if let Some(text) = text_of(keyword) {
                self.schema_index.references.push(Reference { schema, base: base.clone(), text });
            }
        }
        for (keyword, subschema) in map {
            self.path.push(PointerStep::Key(keyword));
            match subschema {
                _ if DATA_KEYWORDS.contains(&keyword.as_str()) => {}
                Value::Object(schemas) if SCHEMAS_BY_NAME.contains(&keyword.as_str()) => {
                    for (name, schema) in schemas {
                        self.schema_below(PointerStep::Key(name), schema, base)?;
                    }
                }
                Value::Array(list) => {
                    for (index, schema) in list.iter().enumerate() {
                        self.schema_below(PointerStep::Index(index), schema, base)?;
                    }
                }
                below => self.schema(below, base)?,
            }
            self.path.pop();
        }
        Ok(())
    }

    fn schema_below(
        &mut self,
        step: PointerStep<'s>,
        schema: &'s Value,
        base: &Uri<String>,
    ) -> Result<(), SchemaError> {
        self.path.push(step);
        self.schema(schema, base)?;
        self.path.pop();
        Ok(())
    }

    /// Returns the pointer to the current position of the walk.
    fn pointer(&mut self) -> Result<String, SchemaError> {
        let mut pointer = String::new();
        for step in &self.path {
            pointer.push('/');
            match step {
                PointerStep::Key(key) => pointer.push_str(&key.replace('~', "~0").replace('/', "~1")),
                PointerStep::Index(index) => pointer.push_str(&index.to_string()),
            }
        }
        self.schema_index.bytes += pointer.len();
        if self.schema_index.bytes > MAX_POINTER_BYTES {
            return Err(SchemaError::TooComplex);
        }
        Ok(pointer)
    }
}

impl SchemaIndex<'_> {
    /// Returns the pointers to the possible targets of a reference. There is at least one.
    fn targets(&self, reference: &Reference<'_>) -> Result<Vec<String>, SchemaError> {
        let refused = || unusable_reference(reference.text);
        let (address_text, fragment) = reference.text.split_once('#').unwrap_or((reference.text, ""));
        let resource = match address_text {
            "" => without_fragment(&reference.base),
            address => {
                without_fragment(&resolve(&reference.base, address).map_err(|_not_an_address| refused())?)
            }
        };
        let (schema, pointer) = self.resources.get(&resource).ok_or_else(refused)?;
        if !fragment.is_empty() && !fragment.starts_with('/') {
            let anchor = self.anchors.get(&(resource, fragment)).ok_or_else(refused)?;
            // At run time the validator can choose any dynamic anchor of this name, so all of them are targets.
            let dynamic_targets = self.dynamic.get(fragment).filter(|targets| targets.contains(anchor));
            return Ok(dynamic_targets.cloned().unwrap_or_else(|| vec![anchor.clone()]));
        }
        // The fragment is a percent-encoded JSON pointer.
        let path_below = percent_decoded(fragment).ok_or_else(refused)?;
        let target = schema.pointer(&path_below).ok_or_else(refused)?;
        if !self.schemas.contains(&address(target)) {
            return Err(refused());
        }
        Ok(vec![format!("{pointer}{path_below}")])
    }
}

fn spelled_out(value: &Value, targets: &Targets) -> Value {
    match value {
        Value::Object(map) => {
            let mut copy: serde_json::Map<_, _> =
                map.iter().map(|(key, subschema)| (key.clone(), spelled_out(subschema, targets))).collect();
            if let Some(target_lists) = targets.get(&address(value)) {
                for keyword in REFERENCE_KEYWORDS {
                    copy.remove(keyword);
                }
                if let [targets] = target_lists.as_slice()
                    && let [target] = targets.as_slice()
                {
                    copy.insert("$ref".to_owned(), format!("#{target}").into());
                } else {
                    let resolved_targets: Vec<Value> =
                        target_lists.iter().flatten().map(|target| target.as_str().into()).collect();
                    copy.insert("$dynamicRef".to_owned(), resolved_targets.into());
                }
            }
            copy.into()
        }
        Value::Array(items) => items.iter().map(|item| spelled_out(item, targets)).collect(),
        scalar => scalar.clone(),
    }
}

fn resolve(base: &Uri<String>, text: &str) -> Result<Uri<String>, SchemaError> {
    uri::resolve_against(&base.borrow(), text).map_err(|_not_an_address| unusable_reference(text))
}

fn without_fragment(uri: &Uri<String>) -> String {
    uri.as_str().split('#').next().unwrap_or_default().to_owned()
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, after_byte @ ..] = rest {
        rest = after_byte;
        bytes.push(match (first, after_byte) {
            (b'%', [high, low, after_escape @ ..]) => {
                rest = after_escape;
                let digit = |byte: &u8| char::from(*byte).to_digit(16);
                u8::try_from(digit(high)? * 16 + digit(low)?).ok()?
            }
            (b'%', _) => return None,
            (byte, _) => *byte,
        });
    }
    String::from_utf8(bytes).ok()
}

fn address(value: &Value) -> *const Value {
    std::ptr::from_ref(value)
}

fn unusable_reference(reference: &str) -> SchemaError {
    SchemaError::Reference { reference: reference.to_owned() }
}

/// Keywords that refer to a schema.
const REFERENCE_KEYWORDS: [&str; 2] = ["$ref", "$dynamicRef"];

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[track_caller]
    fn check(schema: &Value, location: &str, expected: &Value) {
        let copy = spell_out_references(schema).expect("usable");
        assert_eq!(copy.pointer(location), Some(expected), "{copy}");
    }

    #[test]
    fn every_form_of_reference_becomes_a_pointer() {
        let a_b = json!({"type": "integer"});
        check(
            &json!({"$defs": {"a%b": a_b}, "not": {"$ref": "#/$defs/a%25b"}}),
            "/not/$ref",
            &json!("#/$defs/a%b"),
        );
        check(
            &json!({"$defs": {"a": {"$anchor": "x"}}, "not": {"$ref": "#x"}}),
            "/not/$ref",
            &json!("#/$defs/a"),
        );
        let schema = json!({
            "$id": "https://example.com/root.json",
            "$defs": {
                "a/b": {"$id": "folder/", "$defs": {"c": {"$ref": "other.json#/items/0"}}},
                "d": {"$id": "folder/other.json", "items": [{"$ref": "#"}, {"$ref": "/root.json"}]},
            },
        });
        check(&schema, "/$defs/a~1b/$defs/c/$ref", &json!("#/$defs/d/items/0"));
        check(&schema, "/$defs/d/items/0/$ref", &json!("#/$defs/d"));
        check(&schema, "/$defs/d/items/1/$ref", &json!("#"));
        let in_data =
            json!({"const": {"$ref": "https://example.com"}, "properties": {"$ref": {"type": "null"}}});
        assert_eq!(spell_out_references(&in_data).expect("usable"), in_data);
    }

    #[test]
    fn a_dynamic_reference_leads_to_every_anchor_of_its_name() {
        let schema = json!({
            "$defs": {
                "a": {"$id": "a", "$dynamicAnchor": "node", "items": {"$dynamicRef": "#node"}},
                "b": {"$id": "b", "$dynamicAnchor": "node"},
                "c": {"$id": "c", "$anchor": "node", "items": {"$dynamicRef": "#node"}},
            },
        });
        check(&schema, "/$defs/a/items/$dynamicRef", &json!(["/$defs/a", "/$defs/b"]));
        check(&schema, "/$defs/c/items/$ref", &json!("#/$defs/c"));
        let two_anchors =
            json!({"$defs": {"a": {}, "b": {}}, "not": {"$ref": "#/$defs/a", "$dynamicRef": "#/$defs/b"}});
        check(&two_anchors, "/not/$dynamicRef", &json!(["/$defs/a", "/$defs/b"]));
    }

    #[test]
    fn foreign_or_ambiguous_reference_is_refused() {
        for reference in [
            "https://example.com/s.json",
            "https://json-schema.org/draft/2020-12/schema",
            "file:///etc/passwd",
            "other",
            "#anchor",
            "#/$defs/none",
            "#/const",
            "#/$defs",
            "#/%zz",
            "http://[",
        ] {
            let schema =
                json!({"$defs": {"a": {}}, "const": {}, "properties": {"default": {"$ref": reference}}});
            let error = spell_out_references(&schema).expect_err(reference);
            assert_eq!(error, unusable_reference(reference));
        }
        let repeated_id = json!({"$defs": {"a": {"$id": "x"}, "b": {"$id": "x"}}});
        assert!(spell_out_references(&repeated_id).is_err());
        let repeated_anchor = json!({"$defs": {"a": {"$anchor": "x"}, "b": {"$anchor": "x"}}});
        assert!(spell_out_references(&repeated_anchor).is_err());
    }

    #[test]
    fn long_names_do_not_multiply() {
        let anchors: serde_json::Map<_, _> =
            (0..100).map(|n| (n.to_string(), json!({"$anchor": format!("a{n}")}))).collect();
        let schema = json!({"$defs": {"x".repeat(100_000): {"$defs": anchors}}});
        assert_eq!(spell_out_references(&schema), Err(SchemaError::TooComplex));
        let refs: Vec<_> = (0..100).map(|_| json!({"$ref": "#a"})).collect();
        let schema = json!({"$defs": {"x".repeat(100_000): {"$anchor": "a"}}, "anyOf": refs});
        assert_eq!(spell_out_references(&schema), Err(SchemaError::TooComplex));
    }
}
