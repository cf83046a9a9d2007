//! Converts a Rust type to a schema in normal form, through schemars.

use schemars::{JsonSchema, SchemaGenerator, generate::SchemaSettings};
use serde_json::{Map, Value};

use super::{Definitions, normal};

/// Returns the schema of a parameter's type. A given description replaces the type's own description.
#[must_use]
pub fn typed<T: crate::ToolParam>(
    description: Option<&str>,
    definitions: &mut Definitions,
) -> Map<String, Value> {
    let mut generator = generator(SchemaSettings::for_deserialize);
    let schema = generator.subschema_for::<T>().to_value();
    normalize_with_definitions(&mut generator, schema, description, definitions)
}

/// Returns the schema of a structured result; `None` if the schema would allow everything.
#[must_use]
pub(crate) fn output_schema_of<T: JsonSchema>() -> Option<portcullis_types::JsonSchema> {
    let mut generator = generator(SchemaSettings::for_serialize);
    let schema = generator.subschema_for::<T>().to_value();
    let mut definitions = Definitions::default();
    let mut map = normalize_with_definitions(&mut generator, schema, None, &mut definitions);
    if map.is_empty() {
        return None;
    }
    let definitions = definitions.into_map();
    if !definitions.is_empty() {
        map.insert("$defs".to_owned(), definitions.into());
    }
    Some(portcullis_types::JsonSchema::new(normal::sorted(map.into())))
}

fn generator(contract: fn(SchemaSettings) -> SchemaSettings) -> SchemaGenerator {
    contract(SchemaSettings::draft2020_12())
        .with(|settings| settings.inline_subschemas = true)
        .into_generator()
}

/// The part that does not depend on the type. It is a separate function, so that it is compiled once.
fn normalize_with_definitions(
    generator: &mut SchemaGenerator,
    mut schema: Value,
    description: Option<&str>,
    shared_definitions: &mut Definitions,
) -> Map<String, Value> {
    // `false`: no transforms are applied, because the settings have none.
    let definitions = generator.take_definitions(false);
    if let (Some(description), Value::Object(map)) = (description, &mut schema) {
        map.insert("description".to_owned(), description.into());
    } else if let (Some(description), Value::Bool(true)) = (description, &schema) {
        schema = Map::from_iter([("description".to_owned(), description.into())]).into();
    }
    let mut schema = normal::normalize(schema);
    let mut definitions: Map<String, Value> =
        definitions.into_iter().map(|(name, definition)| (name, normal::normalize(definition))).collect();
    // Write out a recursive type once, in the definitions.
    let known_definitions = definitions.clone();
    replace_by_references(&mut schema, &known_definitions);
    for definition in definitions.values_mut() {
        // Replace only the parts, because a definition must not become a reference to itself.
        child_values(definition).for_each(|part| replace_by_references(part, &known_definitions));
    }
    shared_definitions.adopt(&mut schema, definitions);
    match schema {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}

/// Replaces every schema that equals a definition by a reference to it.
fn replace_by_references(schema: &mut Value, definitions: &Map<String, Value>) {
    match definitions.iter().find(|(_, definition)| *definition == schema) {
        Some((name, _)) => *schema = serde_json::json!({ "$ref": format!("#/$defs/{name}") }),
        None => child_values(schema).for_each(|part| replace_by_references(part, definitions)),
    }
}

fn child_values(schema: &mut Value) -> Box<dyn Iterator<Item = &mut Value> + '_> {
    match schema {
        Value::Object(map) => Box::new(map.values_mut()),
        Value::Array(items) => Box::new(items.iter_mut()),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => Box::new(std::iter::empty()),
    }
}
